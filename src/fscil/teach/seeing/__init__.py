"""From a photo on disk to features, and to an answer without torch."""
