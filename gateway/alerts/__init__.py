"""Telling an organization what its budgets have come to: by mail, and by signed webhooks."""
