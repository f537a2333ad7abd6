"""Measuring: candidates are built and run in isolated worker processes, verified, then timed."""
