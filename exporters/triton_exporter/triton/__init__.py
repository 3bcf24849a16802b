"""What Triton answers over its HTTP API, polled and parsed once."""
