"""The one client of Prometheus."""
