"""Thresholds of alerts, and the settings by which an installation changes them."""
