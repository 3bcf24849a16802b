"""Delivery: choose the next message, compose it, and send it to Slack."""
