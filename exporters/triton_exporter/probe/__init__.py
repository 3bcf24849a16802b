"""Cheap real inferences, sent when the operator asks for them: a model that is loaded may still not work."""
