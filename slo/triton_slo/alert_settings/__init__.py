"""What alerts compare with their thresholds, and how an installation changes that."""
