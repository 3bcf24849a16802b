"""Incidents: parse notifications, merge them into incidents, and store these with their deliveries."""
