"""Command line, demo, servers on this machine, and deployment files."""
