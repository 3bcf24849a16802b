"""The exporter's options: on the command line and, under the same names, in a settings file."""
