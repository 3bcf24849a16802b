"""Reviews after the fact: recorded incidents, and reports of months and quarters."""
