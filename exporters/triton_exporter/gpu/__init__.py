"""GPUs under Triton: read from the best source there is, in one canonical shape, and shared out to models."""
