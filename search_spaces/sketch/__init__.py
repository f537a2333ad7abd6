"""Sketches: structured spaces of schedules for any definition, found by rules instead of written by hand."""
