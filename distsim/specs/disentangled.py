"""Attention whose scores also compare words with distances, each looked up in a table (DeBERTa)."""

from pydantic import Field

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, Natural


class Disentangled(Spec):
    """Disentangled attention (He et al. 2020, DeBERTa, arXiv:2006.03654; v3: arXiv:2111.09543)."""

    span: Count
    """Distances told apart on either side; the table, which all layers share, has twice as many rows."""
    terms: int = Field(default=2, ge=1, le=2)
    """Comparisons beside that of words with words: words with distances, distances with words."""
    own_projections: bool = False
    """Distances have projections of their own in each layer; else those of queries and keys (v2 and v3)."""
    norm: bool = True
    """A norm of the table."""
    convolution: Natural = 0
    """Taps of a convolution beside the first layer (v2); 0: none."""

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return 2 * self.span
