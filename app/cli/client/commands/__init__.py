"""The commands that call a service, a module for each noun."""
