"""What the verbs show as tables, and the same as JSON."""
