"""Routes that explain rows: explain, simulate, lateness."""
