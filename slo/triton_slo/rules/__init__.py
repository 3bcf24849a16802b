"""Recording rules of an objective."""
