"""What stands in the place of attention: state-space scans, the gated delta rule, short convolutions."""

from pydantic import Field

from distsim.specs.base import Spec


class Mamba(Spec):
    """Mamba-2 mixers (arXiv:2405.21060), or Mamba-1 (arXiv:2312.00752), whose heads are one channel each."""

    heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    state: int = Field(ge=1)
    """State size per head."""
    groups: int = Field(ge=1)
    """Groups of heads that share B and C."""
    convolution: int = Field(default=4, ge=1)
    """Taps of the convolution before the scan."""
    step_rank: int | None = Field(default=None, ge=1)
    """Mamba-1: rank of the projection to the step widths of the channels; None means Mamba-2."""
    inner_norms: bool = False
    """Mamba-1: norms on the narrow step widths, B and C (Jamba)."""
    bias: bool = False
    """The projections into and out of the mixer have biases."""
    convolution_bias: bool = True


class DeltaNet(Spec):
    """Gated DeltaNet (arXiv:2412.06464), or Kimi Delta Attention (arXiv:2510.26692), which decays by channel."""

    key_heads: int = Field(ge=1)
    value_heads: int = Field(ge=1)
    """A multiple of ``key_heads``, whose queries and keys they share."""
    key_dim: int = Field(ge=1)
    """Width of a query or key head."""
    value_dim: int = Field(ge=1)
    convolution: int = Field(default=4, ge=1)
    """Taps of the convolution over queries, keys and values."""
    channel_rank: int | None = Field(default=None, ge=1)
    """Kimi Delta Attention: rank of the projection to the decay of every key channel; None: one decay a head."""
    gate_rank: int | None = Field(default=None, ge=1)
    """Rank of the projection to the output's gate; None means full rank."""


class ShortConvolution(Spec):
    """Gated short convolutions over the hidden width (LFM2, arXiv:2511.23404)."""

    taps: int = Field(ge=1)
    bias: bool = False
    """The convolution and the projections have biases."""
