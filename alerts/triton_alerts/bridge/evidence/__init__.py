"""What Prometheus knows about an incident."""
