"""What tests are played on: the product as processes, the cast, the catalog, the books, and what lies between."""
