"""What each channel has been sent, and what is still to be sent."""
