"""Runs that tasks wrote: their files and footers are checked, two of them are compared."""
