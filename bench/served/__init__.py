"""Benchmarks of a whole ``keyfold serve``, called over HTTP."""
