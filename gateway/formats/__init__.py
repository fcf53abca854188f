"""How pages write dates. Django looks for these by language."""
