"""When error budget burns too fast: the condition, its rules and its words."""
