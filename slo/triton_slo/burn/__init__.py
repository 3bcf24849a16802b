"""Burn alerts: the condition, its rules and its texts."""
