"""Client of Triton's HTTP API: each answer is polled and parsed once."""
