"""Search: which config to measure next, for which task, and when to stop."""
