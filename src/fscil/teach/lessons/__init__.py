"""Single classes and photos: taught, reviewed, corrected."""
