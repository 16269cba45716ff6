"""Measured runs: what their cells and words say, as jobs, and how alike two of them are."""
