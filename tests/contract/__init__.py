"""The contract as a table: what each row promises (rows.toml), what proves it, and how that went (table.py)."""
