"""The ledger: what each operation of a network costs and keeps, for one micro-batch on one rank.

Every field of a row is a number or a numpy array over layouts; all else in distsim is a fold over these rows.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, Self

from distsim.arrays import Number, some, where
from distsim.layers.names import BIAS, PREACTIVATION, Role
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.precision import Precision
from distsim.specs.tuning import Tuning
from distsim.units import FP32_BYTES

Kind = Literal["matmul", "attention", "elementwise", "norm", "embedding", "loss", "copy", "collective", "adapter",
               "unpack", "scan"]  # fmt: skip
ParameterKind = Literal["matrix", "embedding", "vector"]
Held = Literal["trained", "narrow", "whole", "apart", "adapter", "frozen", "quantised"]
"""Why it is there: ``whole``, ``adapter`` train beside what is frozen, ``apart`` as a copy, ``narrow`` in 16 bits."""
FIXED: tuple[Held, ...] = ("frozen", "quantised")
RATE_GRADIENT_ONLY = ".unrated"
"""How names of tensors end that only the gradient of a learned rate reads, which nobody needs where it is frozen."""


class Tensor(NamedTuple):
    """A tensor on one rank. Two rows that name the same tensor share its storage."""

    name: str
    elements: Number
    bytes_each: Number
    shape: str
    """In the field's letters: s, b, h, f, a, d, t …"""
    weight_copy: bool = False
    """A cast copy of a weight, kept for backward but not an activation: its size does not grow with tokens."""
    copy_of: str = ""
    """The tensor of which it is a module's own quantised copy."""

    @property
    def size_bytes(self) -> Number:
        """Bytes of storage."""
        return self.elements * self.bytes_each


class Parameter(NamedTuple):
    """A trained tensor, or ``copies`` of one shape; ``elements`` is what one rank holds of all of them."""

    name: str
    elements: Number
    kind: ParameterKind
    rows: Number = 0
    """Rows and columns of one matrix on this rank, for factored optimizer states; 0 for vectors."""
    columns: Number = 0
    copies: Number = 1
    group: Literal["dense", "expert"] = "dense"
    """``expert`` parameters shard and reduce over their own data-parallel group."""
    tensor_parallel: bool = True
    """False where every tensor-parallel rank holds the whole (norms, routers)."""
    parts: tuple[Number, ...] = ()
    """Output widths of separate matrices that are not alike (queries, keys, values)."""
    held: Held = "trained"

    @property
    def trains(self) -> bool:
        """Whether it has a gradient and optimizer states."""
        return self.held not in FIXED

    @property
    def is_bias(self) -> bool:
        """Whether it is added to what a product or norm makes."""
        return self.name.endswith(BIAS)


class Collective(NamedTuple):
    """Communication of an operation, once per micro-batch; ``bytes_logical`` is the larger of input and output."""

    op: str
    group: Literal["tp", "cp", "ep", "etp", "experts"]
    bytes_logical: Number
    phase: Literal["forward", "backward"]
    overlaps: str = ""
    """What may hide it: the operation's "input gradient" or "weight gradient", or empty when it is exposed."""
    calls: Number = 1
    bytes_each: Number = 0
    """Bytes per element; 0 means the activation's."""
    matrices: int = 1
    """Products that read the input; some frameworks gather it, or reduce its gradient, for each one by itself."""


class Operation(NamedTuple):
    """One row of the ledger."""

    name: str
    kind: Kind
    flops_forward: Number = 0
    flops_backward: Number = 0
    bytes_read: Number = 0
    bytes_written: Number = 0
    """Memory traffic of the forward pass; backward moves about twice as much."""
    shape: tuple[Number, ...] = ()
    """Matmul: (m, n, k, batch); attention: (batch, heads, query tokens, key tokens, head_dim, value width); norm:
    (rows, width); loss: (positions, logits of a rank); a ring's exchange: (queries, steps, keys); elementwise:
    (elements,), of scores picked by distance also those they are picked of and repeated distances."""
    saved: tuple[Tensor, ...] = ()
    """Kept until backward."""
    output: Tensor | None = None
    transient_forward: tuple[Tensor, ...] = ()
    """Alive only while the operation runs, beyond ``saved``."""
    transient_backward: tuple[Tensor, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    collectives: tuple[Collective, ...] = ()
    recompute_class: str = ""
    """Name under which selective recomputation drops it: core_attention, activation, norm."""
    weight_gradient: bool = True
    """False where the weights of a product are frozen: backward is then one product, not two."""
    backward: bool = True  # False where nothing before it trains, so that backward ends after it
    causal: bool = True  # attention computes the scores of earlier keys alone
    reruns: bool = False  # its forward runs once more in its own backward, piece by piece
    role: Role = ""
    adapts: str = ""
    """The row whose adapter it is part of, where that runs beside the row's own product or is cast for it."""


class Context(NamedTuple):
    """Everything a layer needs to state its operations."""

    model: Model
    layout: Layout
    precision: Precision
    kernels: Kernels
    dropout: bool = True
    layer: int = 0
    """Index of the layer, for models whose layers differ."""
    vocab_padded: Number = 0
    tuning: Tuning | None = None
    """Adapters on frozen weights; None where everything trains."""
    tower_kernels: Kernels | None = None  # of a vision tower's layers
    keys: Number | None = None
    """Tokens that are attended to where they are another stack's; None: the layer's own."""
    capacity: float | None = None
    """Slots of an expert over the mean number of its tokens; None where it takes all that it is sent."""
    expert_imbalance: float | None = None
    """Tokens of the busiest expert rank over the mean, where they are stated."""
    mlp_tiles: Number | None = None  # of its tokens, which dense MLPs run on one after another

    @property
    def side(self) -> Self:
        """The context with what its layer has of its own: other tokens, another stack's shape, other heads."""
        model = self.model
        if model.is_text_layer(self.layer):
            text = model.text_model
            return self._replace(model=text, layout=self.layout.with_(seq=text.context), vocab_padded=text.vocab)
        if not model.is_decoder_layer(self.layer):
            own = model.in_layer(self.layer)
            return self if own is model else self._replace(model=own)
        return self._replace(layout=self.layout.with_(seq=model.decoder_context))

    @property
    def sharded_tokens(self) -> Number:
        """Tokens of a micro-batch on this rank between tensor-parallel regions."""
        return self.layout.tokens / self.layout.sequence_shard

    @property
    def stream_bytes(self) -> float:
        """Bytes per element of the residual stream, which some models keep in fp32 whatever the recipe."""
        return FP32_BYTES if self.model.residual_fp32 else self.precision.stream_bytes

    @property
    def activation(self) -> float:
        """Bytes per element of an activation."""
        return self.precision.activation_bytes


class Block(NamedTuple):
    """A run of operations that pipelines and recomputation treat as one: an embedding, a layer, a head."""

    name: str
    operations: tuple[Operation, ...]
    boundary: Tensor | None = None
    """The block's input: all that full recomputation keeps."""


def dropped_by(operation: Operation, kinds: tuple[str, ...]) -> bool:
    """Whether selective recomputation of these kinds, or operations by name, runs an operation again."""
    return (operation.recompute_class != "" and operation.recompute_class in kinds) or operation.name in kinds


MADE = (("query_up", ("query",)), ("kv_up", ("key", "value")), ("activation", ("product",)), ("norm", ("input",)),
        ("dispatch", ("experts.input",)), ("up", (PREACTIVATION.lstrip("."),)),
        ("shared.down", ("shared.output",)), ("latent_in", ("latent_raw",)), ("experts.down", ("experts.output_raw",)),
        ("combine", ("experts.combined",)))  # fmt: skip
"""How the last words of an operation's name become those of what it makes, where other operations keep that."""


def made_by(name: str) -> tuple[str, ...]:
    """Names of the tensors that an operation makes and that those after it keep; attention's output is not among them,
    which selective recomputation leaves alone."""
    for end, made in MADE:
        before = name.removesuffix(end)
        if before.endswith(".") and before != name:
            return tuple(before + one for one in made)
    return ()


def _read(operation: Operation) -> Iterable[str]:
    """Names of the saved tensors that an operation reads, of which it can be run again."""
    if operation.kind in ("matmul", "norm"):
        names = (tensor.copy_of or tensor.name for tensor in operation.saved)
        return (name for name in names if not name.startswith(operation.name))
    return (tensor.name for tensor in operation.saved if tensor.name.endswith(PREACTIVATION))


class Again(NamedTuple):
    """Tensors that selective recomputation makes again, whoever keeps them or copies, and those that it reads."""

    made: frozenset[str]
    read: frozenset[str]


NOTHING_AGAIN = Again(frozenset(), frozenset())


def made_again(operations: Iterable[Operation], kinds: tuple[str, ...]) -> Again:
    """The tensors that recomputation of these kinds discards as soon as the next operation has read them, and those
    that it keeps instead (NVIDIA/Megatron-LM core/tensor_parallel/random.py, CheckpointWithoutOutput)."""
    again = [one for one in operations if dropped_by(one, kinds) and one.recompute_class != "core_attention"]
    if not again:
        return NOTHING_AGAIN
    made = frozenset(name for one in again for name in made_by(one.name))
    return Again(made, frozenset(name for one in again for name in _read(one)) - made)


def distinct_saved(
    operations: Iterable[Operation],
    selective: Number = 0,
    kernels: Kernels | None = None,
    *,
    weight_copies: bool = False,
) -> dict[str, Number]:
    """Bytes of each saved tensor by name; shared storages once, those that selective recomputation drops as zero.

    Cast copies of weights are left out, or with ``weight_copies`` are all that is listed.
    """
    never = isinstance(selective, int) and selective == 0
    dropped, operations = () if kernels is None or never else kernels.selective, tuple(operations)
    again = made_again(operations, dropped) if dropped else NOTHING_AGAIN
    sizes: dict[str, Number] = {}
    for operation in operations:
        add_saved(sizes, operation, dropped, again, selective, weight_copies=weight_copies)
    return sizes


def add_saved(
    sizes: dict[str, Number], operation: Operation, dropped: tuple[str, ...], again: Again, selective: Number = 1, *,
    weight_copies: bool = False,
) -> bool:  # fmt: skip
    """Add the saved tensors of one operation to those of others; whether one of theirs became larger."""
    if not operation.saved:
        return False
    own, grown = dropped != () and dropped_by(operation, dropped), False
    for tensor in operation.saved:
        if tensor.weight_copy != weight_copies:
            continue
        size = tensor.size_bytes
        if (own and tensor.name not in again.read) or tensor.name in again.made or tensor.copy_of in again.made:
            size = size * where(selective, 0, 1)
        if tensor.name not in sizes:
            sizes[tensor.name] = size
        elif some(larger := size > sizes[tensor.name]):
            sizes[tensor.name], grown = where(larger, size, sizes[tensor.name]), True
    return grown


def saved_bytes(operations: Iterable[Operation], selective: Number = 0, kernels: Kernels | None = None) -> Number:
    """Bytes kept until backward by a run of operations for one micro-batch; of arrays, with selective recomputation and
    without it, so that only what is chosen of the two runs over both."""
    if isinstance(selective, int) or kernels is None:
        return sum(distinct_saved(operations, selective, kernels).values())
    operations = tuple(operations)
    whole = saved_bytes(operations)
    if not any(dropped_by(operation, kernels.selective) for operation in operations):
        return whole
    return where(selective, saved_bytes(operations, 1, kernels), whole)


def weight_copy_bytes(operations: Iterable[Operation]) -> Number:
    """Bytes of cast weights kept until backward (autocast), which saved activations do not include."""
    return sum(distinct_saved(operations, weight_copies=True).values())


def parameters_of(operations: Iterable[Operation]) -> list[Parameter]:
    """All parameters that the operations own."""
    return [parameter for operation in operations for parameter in operation.parameters]


def flops_forward(operations: Iterable[Operation]) -> Number:
    """Floating-point operations of one forward pass."""
    return sum(operation.flops_forward for operation in operations)
