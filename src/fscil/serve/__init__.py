"""The service: a model file behind HTTP, for programs and for people; the file stays the only truth."""
