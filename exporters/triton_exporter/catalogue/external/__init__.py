"""Series that other programs expose: not on the page of the exporter."""
