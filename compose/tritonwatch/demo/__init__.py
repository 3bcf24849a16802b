"""The demo: a real Triton with a broken and an overloaded model, and the servers that watch it."""
