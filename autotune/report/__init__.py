"""Reports: what a compiled model is made of, for people and as data."""
