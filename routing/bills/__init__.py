"""Providers' bills, fetched from where they are told."""
