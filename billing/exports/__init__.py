"""What leaves as a file: layouts (which columns) in formats (CSV, XLSX, Parquet), a page at a time."""
