"""What `import autotune` offers: compile, tune, tasks, best_schedule, InferenceSession."""
