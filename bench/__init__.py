"""Benchmarks: real processes, medians, no assertions on time. Read ratios, not seconds."""
