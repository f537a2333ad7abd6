"""Templates of operators, and those of last resort."""
