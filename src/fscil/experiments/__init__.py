"""Experiments: sets of runs that a small TOML file describes, from its axes and arms to its tables."""
