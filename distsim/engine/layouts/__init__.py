"""Searches: the space of layouts, folded in blocks, ranked and mended."""
