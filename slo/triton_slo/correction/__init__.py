"""Corrections: past time that does not count, and history of before an objective's rules were loaded."""
