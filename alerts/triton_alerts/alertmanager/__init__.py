"""Alertmanager's generated configuration."""
