"""Incidents and what happens to them."""
