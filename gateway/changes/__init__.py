"""Changes of prices, limits, budgets and policies that are drafted and applied together; and what each would do."""
