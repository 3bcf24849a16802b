"""Real servers as child processes on loopback: Triton, Prometheus, Alertmanager, Grafana."""
