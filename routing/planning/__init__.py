"""Where one request may go: policies, and the plan they make of offers and their health. Pure."""
