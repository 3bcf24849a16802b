"""Read recorded incidents the morning after, and sum up a week."""
