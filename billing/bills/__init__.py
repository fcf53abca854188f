"""Providers' bills: how they are written, and where they differ from the books."""
