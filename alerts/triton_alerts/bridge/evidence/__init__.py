"""Evidence about an incident: from Prometheus, from the exporters' `/state`, and from its alerts."""
