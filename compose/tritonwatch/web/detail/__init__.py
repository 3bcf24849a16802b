"""What the page of one objective shows beside its status: its past, and the conditions of its alerts."""
