"""What all kinds of indicators share: events and their queries, the caveats of sources, sample series."""
