"""What a step of context parallelism costs beside attention: results and gradients merged, keys and values copied."""

from typing import Literal

from distsim.specs.base import Spec
from distsim.specs.quantity import Amount


class RingKernels(Spec):
    """Kernels and memory traffic of context parallelism. Source: the framework's own code."""

    cp_gradients: Literal["reduce", "fp32_ring"] = "reduce"
    """Context parallelism: key and value gradients go the way keys and values came, in the activation dtype, or in fp32
    around the whole ring whichever way they came (torch 2.13)."""
    cp_gathers_first: bool = False
    """Where keys and values are gathered, attention takes them in the ring's steps all the same (torch)."""
    cp_output: Literal["kept", "again"] = "kept"
    """Where ranks trade heads for tokens: attention's kernel keeps the output that it made, and the projection what it
    was traded for; or that alone is kept, and traded once more in backward (Transformer Engine)."""
    cp_merge_kernels: tuple[Amount, Amount] = (3.0, 5.0)
    """Kernels of a ring's step, forward and backward, beside attention: halves of queries or keys cut out, results and
    their log-sums merged, gradients added (Transformer Engine context_parallel.py, AttnFuncWithCPAndKVP2P)."""
    cp_streams: Literal[1, 2] = 2
    """Streams that a ring's steps take in turn in forward: of two, one's gaps pass beside the other's attention
    (Transformer Engine, flash_attn_streams); torch has one."""
    cp_steps_graphed: bool = False
    """CUDA graphs hold a ring's steps in the runs that its timing is fitted to, so that these cost the host nothing."""
    cp_merge_bytes: tuple[float, float] = (4.5, 4.5)
    """Memory traffic, forward and backward, of adding one ring step's result to those before it, per element of a
    rank's queries. Transformer Engine adds in 16 bits (6 bytes), of half the steps of a causal ring half the queries
    (flash_attn_fwd_out_correction, one compiled kernel; dq.add_)."""
    cp_merge_kv_bytes: tuple[float, float] = (0.0, 7.5)
    """The same per element of a rank's keys and values: gradients of both are put side by side (4 bytes) and added to
    those that come round (6), of half the steps half of them."""
    cp_first_bytes: tuple[float, float] = (4.0, 4.0)
    """What a ring's own step moves per element of queries: its result is scaled into the output; backward it is added,
    and gradients that come first are only written (4)."""
    cp_first_kv_bytes: tuple[float, float] = (4.0, 12.0)
    """The same of keys and values: both are copied into the buffer that goes round, in backward again."""
