"""The commands that ask a service, a module for each noun."""
