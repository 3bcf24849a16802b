"""Messages out: what to send next, and how."""
