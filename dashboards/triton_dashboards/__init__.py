"""Grafana dashboards for Triton, made with grafanalib."""
