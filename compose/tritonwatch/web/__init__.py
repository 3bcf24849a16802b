"""The web page: budgets, incidents and what would change them, read from Prometheus."""
