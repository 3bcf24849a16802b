"""Data of single pages beside the status: the past of an objective or a model, conditions, drawings and forms."""
