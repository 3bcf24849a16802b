"""Triton's traces: received or read, and turned into durations."""
