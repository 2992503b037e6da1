"""For people with photos: learn classes, teach new ones from a few photos, ask, correct, export, explain."""
