"""The model file, and what is kept beside it."""
