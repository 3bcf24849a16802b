"""What pages ask Prometheus: facts about objectives, groups and models, as values."""
