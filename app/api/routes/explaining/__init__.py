"""Routes that say why: explain, simulate, lateness."""
