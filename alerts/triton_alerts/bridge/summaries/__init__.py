"""Recorded incidents as text and JSON, and the summary of a week."""
