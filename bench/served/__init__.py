"""Benchmarks of a whole ``keyfold serve``, asked over HTTP."""
