"""Checks of options against each other and against the columns."""
