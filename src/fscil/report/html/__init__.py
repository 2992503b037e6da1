"""The self-contained HTML page: its blocks, charts and heat maps."""
