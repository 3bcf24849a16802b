"""Client of Triton's API: each answer is polled and parsed once."""
