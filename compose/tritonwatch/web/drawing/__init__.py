"""Charts, time axes and trees of conditions, made of values: no queries and no HTML."""
