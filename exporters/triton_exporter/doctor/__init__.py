"""Settings of a Triton that make it more observable."""
