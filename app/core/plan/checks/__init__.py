"""What options may stand together, and with which columns."""
