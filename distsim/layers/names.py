"""Names by which others know rows and parameters of layers that few models have, whose files they need not load."""

from __future__ import annotations

CROSS = "cross"
"""Begins the names of a decoder's attention to an encoder, which no positions bias."""
IDLE = ".idle"
"""Ends the name of an expert's parameter that nothing reads."""
PROJECTIONS = ("embedding.patches", "embedding.frames", "embedding.convolution")
"""How the names of products begin that stand in the embedding, and yet count as work."""
SECOND = "second."
"""Begins the names of what the second half of a layer that is two keeps and owns."""
