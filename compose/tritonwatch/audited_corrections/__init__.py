"""Writing corrections: the audit trail, and how samples get into Prometheus and VictoriaMetrics."""
