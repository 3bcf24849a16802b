"""Messages that each channel was sent, and those that are still to be sent."""
