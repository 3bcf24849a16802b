"""The options, examples and exit codes of the verbs, one module each: all that `--help` needs."""
