"""Knobs, configs and spaces; templates and where they are registered; what records and other sizes make of them."""
