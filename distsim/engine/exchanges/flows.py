"""One kind of exchange of a training step, before it is priced; every number may be an array over layouts."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self

from distsim.arrays import Number, maximum, nothing, where
from distsim.engine.networks.network import Group, Network, fill_bridges
from distsim.engine.networks.spread import Spread, pair_apart, spread
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.specs.precision import Precision

Role = Literal["", "gradients", "replicas", "parameters", "varied", "buffers", "vocabulary", "copies", "last copies"]
"""What is exchanged, where that decides when it happens and what hides it: gradients to those who share them, then to
the replicas of their shards; parameters; what a variant has in place of any of these; a module's buffers; a vocabulary
that stages share; gradients on their way to host memory, and on to drives."""
Where = Literal["embedding", "layers", "head"]
"""The part of the network that waits for an exchange."""
STATES: dict[Role, str] = {
    "gradients": "gradients", "replicas": "gradients of replicas", "parameters": "parameters",
}  # fmt: skip
"""What plain data parallelism and ZeRO exchange, and what people read of it."""
RECOMPUTED = ", recomputed"
"""Ends the purpose of what is exchanged once more in backward."""
INNERMOST = ("tp", "ep")
LONGEST_AXIS = 16
"""Chips along one axis of most slices (a v5e or v6e pod is 16 by 16)."""


class Span(NamedTuple):
    """A process group: its name in the contract, its size, and how far apart its ranks are numbered.

    Ranks are numbered tp first, then cp, dp and pp (experts: etp, ep, then data), so that what talks most sits closest.
    Of a pair of pipeline stages ``stride`` counts the ranks of a stage.
    """

    group: str
    ranks: Number
    stride: Number
    ends: tuple[Number, Number] | None = None
    """First ranks of the two stages of a pair, where whether they share a domain depends on where they are."""
    world: Number = 0
    """All ranks of the job; 0: any number."""
    all_at_once: bool = False
    """Whether all stages exchange as these two do at the same time, so that every rank of a node may."""

    def placed(self, network: Network, domain: int | None = None) -> Group:
        """The worst group of this kind on the network's domains, or on larger ones that a tier of switches joins, whose
        nodes a job takes as it needs them."""
        ranks, node = maximum(self.ranks, 1), network.node or network.domain
        size = network.domain if domain is None else domain
        domains, fewest = self._spread(ranks, size, node)
        bridged: Number = False
        bridges: Number = False
        if network.bridge is not None:
            bridges = (self.stride == 1) & (self.ends is None) & fill_bridges(ranks, domains, network.bridge)
            bridged = (self._spread(ranks, network.bridge.cards, 0)[0] == 1) & (domains == 1)
        return Group(
            ranks, ranks / domains, domains, network, self._sharing(network), axes=self._axes(network), bridged=bridged,
            fewest=fewest, bridges=bridges, apart=self._apart(size),
        )  # fmt: skip

    def _sharing(self, network: Network) -> Number:
        """How many ranks share a GPU's part of the NICs: of two stages those of one, or as many as fit a node."""
        return 1 if self.ends is None or self.all_at_once else network.sharing_of(self.stride)

    def _apart(self, size: int) -> Number:
        """Domains of a size from one of the group's to the next."""
        ends = self.ends
        far = self.stride if ends is None else maximum(ends[0] - ends[1], ends[1] - ends[0])
        return maximum(far / size, 1)

    def _spread(self, ranks: Number, domain: int, node: int) -> Spread:
        if self.ends is None:
            return spread(ranks, self.stride, self.world, domain, node)
        domains = where(pair_apart(*self.ends, self.stride, domain, node), 2, 1)
        return domains, ranks / domains

    def _axes(self, network: Network) -> Number:
        """Axes of a torus: model parallel ranks lie along one, the groups around them along the others (MaxText's
        guide to custom models counts so); a group that nothing is inside of has all."""
        whole = network.torus_axes
        if not whole:
            return 0
        others = maximum(whole - 1, 1)
        if self.group in INNERMOST:
            return where(self.stride > 1, others, where(self.ranks > LONGEST_AXIS, whole, 1))
        return where(self.stride > 1, others, whole)


SLOW_LINK = "slow link"
"""A link whose rate the user states."""


class Fixed(NamedTuple):
    """The price of what is no collective (host transfers, parameter servers): seconds and bytes sent per call."""

    seconds: Number
    wire_bytes: Number
    link: Any
    algorithm: str
    function: Callable[..., Number] | None = None
    """The registered formula of the seconds."""
    arguments: Mapping[str, Any] | None = None

    @classmethod
    def by(cls, wire: Number, link: Any, algorithm: str, function: Callable[..., Number], **arguments: Any) -> Self:
        """Priced by a registered formula."""
        return cls(function(**arguments), wire, link, algorithm, function, arguments)


class Floor(NamedTuple):
    """Seconds that a call takes at least, by a registered formula."""

    function: Callable[..., Number]
    arguments: Mapping[str, Any]
    source: str

    @property
    def seconds(self) -> Number:
        """What the formula says."""
        return self.function(**self.arguments)


class Flow(NamedTuple):
    """Alike exchanges of one rank in one step. ``bytes_logical`` is the larger of a call's input and output."""

    purpose: str
    """For people; what follows from what an exchange is for follows from ``role`` and ``where``."""
    op: str
    span: Span
    dtype: str
    phase: str
    calls: Number
    bytes_logical: Number
    hides: bool = False
    """It can run beside computation of its phase."""
    priced_as: str = ""
    """The pattern where ``op`` is only a name for it (a ring's step issued as an all-to-all)."""
    every: Number = 1
    """Happens once in so many steps; bytes and seconds are then averages per step."""
    fixed: Fixed | None = None
    own_rate: Number = 0.0
    """Bytes of a call per second that a kernel of the framework's own reaches, taken where it is faster than the
    library; 0 where there is none."""
    floors: tuple[Floor, ...] = ()
    """What keeps a call from the library's rate."""
    passed_on: Number = 0.0
    """Bytes of a call that a rank passes on inside its domain, beside what the collective itself sends."""
    role: Role = ""
    where: Where = "layers"
    recomputed: bool = False
    groups: tuple[str, ...] = ()
    """The groups whose ranks exchange it together, where that is not the span's alone."""

    @property
    def calls_per_step(self) -> Number:
        """Calls in the mean of all steps."""
        return self.calls if isinstance(self.every, int) and self.every == 1 else self.calls / self.every

    @property
    def pattern(self) -> str:
        """The operation that is priced."""
        return self.priced_as or self.op

    @property
    def alone(self) -> bool:
        """Whether it is among one rank, which sends nothing; not so where arrays have layouts with more."""
        return isinstance(self.span.ranks, (int, float)) and self.span.ranks <= 1 and self.fixed is None

    def again(self, calls: Number) -> Self:
        """This flow as a recomputed layer repeats it in backward."""
        return self._replace(purpose=self.purpose + RECOMPUTED, phase="backward", calls=calls, recomputed=True)


def of_states(
    role: Role, op: str, span: Span, dtype: str, phase: str, calls: Number, size: Number, hides: bool = False
) -> Flow:
    """An exchange of gradients or parameters among those who share them."""
    return Flow(STATES[role], op, span, dtype, phase, calls, size, hides, role=role)


def present(flows: list[Flow]) -> list[Flow]:
    """The flows that move something between at least two ranks, alike ones added up."""
    merged: dict[tuple[object, ...], Flow] = {}
    kept: list[Flow] = []
    for flow in flows:
        if flow.alone or nothing(flow.calls) or nothing(flow.bytes_logical):
            continue
        span = flow.span
        sizes = flow.calls, flow.bytes_logical, flow.every, span.ranks, span.stride, span.world, *(span.ends or ())
        if not all(isinstance(size, (int, float)) for size in sizes):
            kept.append(flow)
            continue
        key = (flow.purpose, flow.op, flow.span, flow.dtype, flow.phase, flow.bytes_logical, flow.hides, flow.every)
        old = merged.get(key)
        merged[key] = flow if old is None else old._replace(calls=old.calls + flow.calls)
    return [*merged.values(), *kept]


def dtype_name(bytes_each: Number, precision: Precision) -> str:
    """The name of an activation's number format by its size."""
    if bytes_each == DTYPE_BYTES["bf16"]:
        return "fp16" if precision.math == "fp16" else "bf16"
    return "fp32" if bytes_each > DTYPE_BYTES["bf16"] else "fp8"
