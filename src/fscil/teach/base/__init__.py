"""Base classes learned from a folder of photos."""
