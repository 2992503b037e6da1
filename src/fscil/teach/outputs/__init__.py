"""What a model is good for and good at: tests, pages, cards, exports, pictures, sorted photos."""
