"""How much more traffic a model takes until an objective breaks, and which change of its configuration helps."""
