"""Benchmarks: one script per claim; run as `python -m benchmarks.NAME` in the root."""
