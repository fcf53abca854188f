"""The first page: what was used and spent in a range of days, and what needs somebody."""
