"""Configuration and work of each model as series."""
