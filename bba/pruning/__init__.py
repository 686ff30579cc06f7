"""Cost of a configuration, and structural pruning in three steps: score, plan, cut."""
