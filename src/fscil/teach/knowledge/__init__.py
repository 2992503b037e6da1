"""What a model is: branches, names, a journal, the features of photos, and how sure it may be."""
