"""Evidence about an incident from Prometheus."""
