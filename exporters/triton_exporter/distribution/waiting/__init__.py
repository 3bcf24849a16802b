"""Counted requests that have not entered their histogram: one module for each thing that they wait for."""
