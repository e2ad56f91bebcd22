"""What every format asks of the runs that a version shows."""
