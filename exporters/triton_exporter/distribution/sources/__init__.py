"""Sources of distributions: what Triton itself exposes, and traced requests."""
