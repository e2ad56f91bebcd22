"""Benchmarks of merges and compactions: the same tasks in this process and on Spark, without HTTP."""
