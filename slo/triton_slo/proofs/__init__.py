"""promtool tests that show of every generated alert that it fires and stays quiet."""
