"""What people press and what becomes due while incidents are open."""
