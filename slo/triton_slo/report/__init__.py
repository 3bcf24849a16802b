"""Which objectives were met over a month or a quarter, from what the rules recorded."""
