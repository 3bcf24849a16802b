"""The front door: command line, local stack, demo and deployment files."""
