"""Schedules that serve many operators: which stages are computed where, loops over rows, sums in registers."""
