"""What turns ideal seconds into those of a real step: few numbers, each with a meaning, fitted by distsim calibrate."""

from typing import Annotated, Any, NamedTuple

from pydantic import Field

from distsim.specs.base import Spec
from distsim.specs.quantity import Once

MODULE_SECONDS, OPERATION_SECONDS, CORE_SECONDS = 5e-5, 3.5e-5, 1.6e-4
"""Host time of an operation: in a module of plain torch; in plain torch where modules are counted one by one; in a
module of Megatron core or Transformer Engine. Priors of ``kernel_issue_seconds``; their ratios hold for operations of
one kind beside those of another."""


# What anybody means, each beyond what was ever fitted (presets/timing/fitted.toml): more is a slip of the keys.
Sustained = Annotated[float, Once(Field(ge=0.01, le=2))]
"""Of a rate that was measured: no chip sustains twice that, nor does anybody keep one that reaches a hundredth."""
Streamed = Annotated[float, Once(Field(ge=0.01, le=4))]
"""Of the datasheet's bandwidth: fusion spares three of four passes at the very most."""
Times = Annotated[float, Once(Field(ge=0, le=100))]
"""A time over what it is priced at: 4.8 is the largest that was fitted."""
HostSeconds = Annotated[float, Once(Field(ge=0, le=0.1))]
"""Of one kernel, or of one layer's host: 0.16 ms and 2 ms are the largest that were fitted."""
StepSeconds = Annotated[float, Once(Field(ge=0, le=600))]
"""Of a step, or of a micro-batch's stalls: 0.05 and 0.5 s are the largest that were fitted."""
Deviation = Annotated[float, Once(Field(ge=0, le=1))]
"""Of speeds, over their mean: GPUs that differ by a factor share no step."""


class Timing(Spec):
    """Shares, factors and overheads of one framework on one kind of accelerator."""

    matmul: Sustained = 0.95
    """Share of the best measured rate that a large product sustains inside a step (clocks, epilogues)."""
    matmul_narrow: Sustained = 1.0
    """The same of products in 8 or 4 bits, over that: what slows one width inside a step slows the other too."""
    grouped: Sustained = 0.9
    """Share that the grouped products of experts keep of a dense product's: small groups."""
    attention: Sustained = 0.85
    """Share of the best measured product rate that flash attention reaches at long sequences and 128-wide heads."""
    stream: Streamed = 0.75
    """Share of the datasheet's bandwidth over the bytes of engine/kernels/passes.py: low where code makes more passes
    than are counted there, above 1 where fusion saves some."""
    kernel_gap_seconds: HostSeconds = 4e-6
    """Idle time on the GPU between two kernels."""
    kernel_issue_seconds: HostSeconds = MODULE_SECONDS
    """Time the host needs per kernel; it hides behind the GPU where kernels are long."""
    tensor_factor: Times = 1.1
    """Exposed time of tensor parallel exchanges over their priced time: below 1 where they overlap with products."""
    context_factor: Times = 1.0
    """The same for context parallel exchanges."""
    expert_factor: Times = 1.0
    """The same for expert parallel exchanges."""
    data_factor: Times = 1.1
    """Time of gradient reduction over its priced time: above 1 where it competes with computation."""
    gather_factor: Times = 1.1
    """The same for gathering sharded parameters."""
    exposed_fraction: Times = 0.3
    """Part of the data parallel traffic that does not hide although computation would be long enough."""
    pipeline_factor: Times = 0.5
    """Exposed time of pipeline transfers over their priced time."""
    optimizer: Sustained = 0.74
    """Bandwidth that the optimizer step reaches, as a share of the datasheet's: torch's fused AdamW 0.78 in fp32 and
    0.68 in bf16 on an H100, 0.72 on an H200, foreach 0.80, 0.72 and 0.77 (tests/oracles/gpu_kernels.csv)."""
    step_seconds: StepSeconds = 0.01
    """What a step costs whatever its size: data loading, logging, synchronisation."""
    jitter: Deviation = 0.015
    """Spread of the GPUs' speeds, as a standard deviation: the slowest sets the pace. Sinha et al. 2022
    (arXiv:2208.11035): on five clusters the whiskers of GPUs' times, which hold 5.4 deviations, are 8% apart."""
    stall_seconds: StepSeconds = 0.0
    """Time lost per micro-batch and neighbouring pipeline stage in software that is ``STALLED``."""
    layer_stall_seconds: HostSeconds = 0.0
    """Host time per layer, micro-batch and tensor parallel rank in software that is ``CHECKED``."""


PLAIN, CHECKED, STALLED = STATES = (0, 1, 2)
"""States that a framework's software was measured in: as it should be; with every collective checked on the host
first; and with pipeline exchanges that stall besides. Only nanotron's sweep shows the latter two
(docs/findings/nanotron.md)."""
STATE_NAMES = ("plain", "checked", "stalled")
NAMES = tuple(Timing.model_fields)
STALLS = ("stall_seconds", "layer_stall_seconds")
"""What tells these states apart."""


class Kin(NamedTuple):
    """Under whose names a framework's measured runs and fitted numbers are found."""

    name: str
    like: str
    """The framework whose runs stand for this one as long as nobody has fitted its own; itself where it has them."""
    family: str
    """Of frameworks that share code, so that one without measured runs is like its relatives."""
    prior: tuple[tuple[str, float], ...] = ()
    """Numbers that fitting starts from where they are not the defaults of ``Timing``."""
    differs: tuple[tuple[str, float], ...] = ()
    """Those of them that the framework whose runs stand for it starts from elsewhere."""

    @property
    def several(self) -> bool:
        """Whether measured runs come from several ``STATES`` of its software."""
        return any(name in STALLS for name, _ in self.prior)


def combined(tables: dict[str, Any], kin: Kin, architecture: str, where: str = "") -> Timing:
    """The numbers of a framework on an architecture: general ones, times what is known of its relatives and itself.
    What was fitted under its own name holds; else what its relative's runs gave, and what its prior has otherwise.
    ``where`` (a file) opens the message where they are together what none of them is alone."""
    general = tables.get("general", {})
    defaults = {name: float(field.default) for name, field in Timing.model_fields.items()}
    values = {name: float(general.get(name, default)) for name, default in defaults.items()}
    fitted = tables.get("framework", {})
    own = fitted.get(kin.name) or fitted.get(kin.like, {})
    values.update({name: float(value) for name, value in own.get("set", {}).items()})
    if kin.name not in fitted:
        stated = kin.differs if kin.like in fitted else kin.prior
        values.update({name: prior * _moved(general, name, defaults[name]) for name, prior in stated})
    family = tables.get("family", {}).get(kin.family, {})
    chip = tables.get("architecture", {}).get(architecture, {})
    for factors in (chip, family, own, own.get("on", {}).get(architecture, {})):
        for name, value in factors.items():
            if name in values:
                values[name] *= float(value)
    return Timing.read(values, where and f"{where}: all factors of {kin.name} on {architecture} together")


def _moved(general: dict[str, Any], name: str, default: float) -> float:
    """What fitting made of a number under all frameworks, over where it started."""
    return float(general.get(name, default)) / default if default else 1.0
