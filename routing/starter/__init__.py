"""Well-known vendors, models and prices, brought in as rows."""
