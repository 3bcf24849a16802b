"""Sources before Triton: a table of them, and the indicator that reads one."""
