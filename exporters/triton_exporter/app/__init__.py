"""The exporter put together from its parts."""
