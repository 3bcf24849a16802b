"""Reports: objectives met and missed over a month or a quarter, from the recorded series."""
