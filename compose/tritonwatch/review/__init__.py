"""What is read after the fact: recorded incidents, and reports of months and quarters."""
