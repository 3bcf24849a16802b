"""Turn what Triton and the GPU expose into enriched Prometheus series."""
