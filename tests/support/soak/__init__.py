"""Proof under load and faults: services of their own, killed, filled, flooded and fuzzed. Run by `make soak`."""
