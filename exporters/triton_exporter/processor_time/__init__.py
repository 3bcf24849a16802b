"""The processor time that the exporter may take: for readings of Triton, traces and estimates."""
