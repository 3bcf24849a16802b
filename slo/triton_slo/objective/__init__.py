"""Objectives as users write them: read, checked, valid once they exist."""
