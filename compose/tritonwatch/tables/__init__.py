"""Results of commands as tables, and the same as JSON."""
