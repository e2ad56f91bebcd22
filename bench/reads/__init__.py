"""Benchmarks of images and scans: without Spark and HTTP."""
