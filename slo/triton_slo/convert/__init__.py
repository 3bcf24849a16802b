"""Objectives from Sloth and OpenSLO, and to OpenSLO; what does not carry over is reported, never dropped."""
