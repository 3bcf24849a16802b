"""How the requests of a stock Triton spread, estimated from the counts and sums of many intervals; needs numpy."""
