"""Latency and queue distributions: one pair of histograms per model version, fed by the best source."""
