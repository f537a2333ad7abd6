"""Engines to compare with: ours and others under one protocol, timed side by side."""
