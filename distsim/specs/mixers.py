"""What stands in the place of attention: state-space scans, the gated delta rule, short convolutions, linear
attention."""

from typing import Literal

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, MaybeCount


class Mamba(Spec):
    """Mamba-2 mixers (arXiv:2405.21060), or Mamba-1 (arXiv:2312.00752), whose heads are one channel each."""

    heads: Count
    head_dim: Count
    state: Count
    """State size per head."""
    groups: Count
    """Groups of heads that share B and C."""
    convolution: Count = 4
    """Taps of the convolution before the scan."""
    chunk: Count = 128
    """Mamba-2: tokens of a chunk of the scan, within which pairs of them are multiplied."""
    step_rank: MaybeCount = None
    """Mamba-1: rank of the projection to the step widths of the channels; None means Mamba-2."""
    inner_norms: bool = False
    """Mamba-1: norms on the narrow step widths, B and C (Jamba)."""
    bias: bool = False
    """The projections into and out of the mixer have biases."""
    output_bias: bool | None = None
    """Whether the projection out of the mixer has one; None: as the one into it."""
    convolution_bias: bool = True
    norm: bool = True
    """Mamba-2: a norm on the gated output (Falcon-H1 has none)."""
    scaled: bool = False
    """What the projection in gives is multiplied by a fixed factor for each channel (Falcon-H1)."""


DELTA_MODULES = {
    "fused": (("in_proj_qkvz",), ("in_proj_ba",)),
    "split": (("in_proj_qkv", "in_proj_z"), ("in_proj_b", "in_proj_a")),
    "apart": (("q", "k", "v", "g_proj"), ("a_proj", "b_proj")),
}
"""Names of the modules that make queries, keys, values and gate, and of those that make what a token writes and
forgets: Qwen3-Next's, Qwen3.5's, those of OLMo Hybrid and Kimi Linear."""


class DeltaNet(Spec):
    """Gated DeltaNet (arXiv:2412.06464), or Kimi Delta Attention (arXiv:2510.26692), which decays by channel."""

    key_heads: Count
    value_heads: Count
    """A multiple of ``key_heads``, whose queries and keys they share."""
    key_dim: Count
    """Width of a query or key head."""
    value_dim: Count
    convolution: Count = 4
    """Taps of the convolution over queries, keys and values."""
    channel_rank: MaybeCount = None
    """Kimi Delta Attention: rank of the projection to the decay of every key channel; None: one decay a head."""
    gate_rank: MaybeCount = None
    """Rank of the projection to the output's gate; None means full rank."""
    channel_decay: bool = False
    """Every key channel decays by itself, by a projection of full rank (Ling 3)."""
    bounded_decay: bool = False
    """Decays are a sigmoid's, above a lower bound, where Kimi Delta Attention has a softplus (GLM-5.3)."""
    sigmoid_gate: bool = False
    """The output's gate is a sigmoid where others take SiLU (Qwen4-Exp by a key); Kimi Delta Attention's always is."""
    modules: Literal["fused", "split", "apart"] = "fused"
    """Into how many products a framework that follows the model's own code splits the projections in."""

    @property
    def by_channel(self) -> bool:
        """Whether every key channel decays by itself, as in Kimi Delta Attention, or a head as one."""
        return self.channel_rank is not None or self.channel_decay

    @property
    def inputs(self) -> tuple[str, ...]:
        """Modules that make queries, keys, values and, where it has full rank, the gate."""
        return DELTA_MODULES[self.modules][0][: 3 if self.gate_rank else None]

    @property
    def scalars(self) -> tuple[str, ...]:
        """Modules that make one number per head: how much is written and, where a head decays as one, forgotten."""
        return DELTA_MODULES[self.modules][1][1 if self.by_channel else 0 :]

    @property
    def others(self) -> tuple[str, ...]:
        """Modules to the decays of channels, and those by way of a narrow layer to the gate."""
        decays = ("f_a_proj", "f_b_proj") if self.channel_rank else ("f_proj",) if self.channel_decay else ()
        return decays + (("g_a_proj", "g_b_proj") if self.gate_rank else ())

    @property
    def output(self) -> str:
        """The module behind the mixer."""
        return "o" if self.modules == "apart" else "out_proj"


class ShortConvolution(Spec):
    """Gated short convolutions over the hidden width (LFM2, arXiv:2511.23404)."""

    taps: Count
    bias: bool = False
    """The convolution and the projections have biases."""


class Lightning(Spec):
    """Lightning attention (MiniMax-01, arXiv:2501.08313): linear attention with fixed decays, a norm and a gate."""

    heads: Count
    head_dim: Count
    block: Count = 256
    """Tokens of a block, within which pairs of them are multiplied."""


class LinearRecurrence(Spec):
    """The real-gated linear recurrent unit (Griffin, arXiv:2402.19427) behind a short convolution, with a gate."""

    width: Count
    """Channels, each of which recurs by itself."""
    blocks: Count
    """Blocks of channels; its gates are products within each."""
    convolution: Count = 4
    """Taps of the convolution before it."""
