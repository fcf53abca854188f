"""The API's endpoints, a module for each noun of its paths."""
