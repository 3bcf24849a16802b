"""The state of every model version over time, and why a load failed."""
