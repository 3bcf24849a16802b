"""Prometheus text: parsed, relayed, written."""
