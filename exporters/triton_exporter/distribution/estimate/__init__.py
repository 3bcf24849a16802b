"""Estimate the distribution of a stock Triton's requests from counts and sums of many intervals; needs numpy."""
