"""One accelerator: its memory, its peaks, its links, and where each figure comes from."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from distsim.specs.base import Sourced, Spec
from distsim.specs.limits import BYTE_LINKS
from distsim.specs.parts import Architecture
from distsim.specs.quantity import (
    AttentionProducts,
    ByteRate,
    Bytes,
    BytesPerSecond,
    MaybeByteRate,
    MaybeBytes,
    MaybeChipWatts,
    MaybeCount,
    MaybeFlopPerSecond,
    MaybeHertz,
    MaybePart,
    Reached,
    refuse_bits,
)
from distsim.units import gib

LinkKind = Literal["nvlink", "xgmi", "ualink", "xelink", "ici", "hccs", "neuronlink", "ethernet"]
VENDORS = ("NVIDIA", "AMD", "Google", "AWS", "Intel", "Huawei", "Hygon", "Cambricon", "Iluvatar", "MetaX",
           "Moore Threads")  # fmt: skip
"""Those of shipped presets."""
PEAK_DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")


class Peak(Spec):
    """Datasheet rates per number format, dense and with fp32 accumulation; None where the chip lacks the format."""

    fp32: MaybeFlopPerSecond = None
    tf32: MaybeFlopPerSecond = None
    fp16: MaybeFlopPerSecond = None
    bf16: MaybeFlopPerSecond = None
    fp8: MaybeFlopPerSecond = None
    int8: MaybeFlopPerSecond = None
    fp4: MaybeFlopPerSecond = None


class ScaleUpLink(Spec):
    """The link between accelerators of one node or rack; ``rate`` is one direction over all ``links`` of one chip."""

    kind: LinkKind
    rate: BytesPerSecond
    generation: MaybeCount = None
    links: MaybeCount = None
    bridge: bool = False
    """True when the link only joins a few cards (NVLink bridges of PCIe cards), where a cluster says ``bridged``."""

    @model_validator(mode="before")
    @classmethod
    def _in_bytes(cls, stated: Any) -> Any:
        return refuse_bits(stated, BYTE_LINKS, "rate")


def of_generation(table: Mapping[int, float], generation: int) -> float:
    """The entry of the last known generation of PCIe up to this one, and the first one's for hosts before all that are
    known: a later host is taken to be no better than what is known. Whoever asks says what an unstated generation
    counts as."""
    return table[max((one for one in table if one <= generation), default=min(table))]


class HostLink(Spec):
    """The way to host memory; rates are one direction. ``shared`` where chip and host have one memory."""

    kind: Literal["pcie", "c2c", "shared"]
    generation: MaybeCount = None
    rate: MaybeByteRate = None
    measured: MaybeByteRate = None
    accelerators: MaybeCount = None
    """How many accelerators share one host's memory (a Grace's); None: all of a node."""
    memory_rate: MaybeByteRate = None
    """Of one host's memory, where it is not what hosts of its PCIe generation have (formulas/compute.py)."""
    peer: bool = True
    """False for cards that cannot reach each other's memory over PCIe: what they exchange passes host memory."""


COPY_FRACTION = 0.85
"""Bandwidth that a copy reaches, over the datasheet's, where nobody measured it: 0.81 to 0.87 on the A100, GB200,
GB300, MI250X, MI300X, TPU v6e and v7x (presets' ``copy_fraction``)."""


class Measured(Spec):
    """What benchmarks reach, as fractions of the datasheet: best large matmul per format, and memory copy."""

    matmul_fp32: Reached = None
    """On fp32 units, whose products take less power than those of tensor cores."""
    matmul_tf32: Reached = None
    """Where it falls short of what 16 bits reach, which it is taken for otherwise."""
    matmul_fp16: Reached = None
    matmul_bf16: Reached = None
    matmul_fp8: Reached = None
    matmul_fp4: Reached = None
    copy_fraction: MaybePart = None
    """Bandwidth of memory that a copy reaches."""


class Chip(Spec):
    """Inside the chip: ``units`` counts SMs, CUs or cores, ``clock`` is the highest, ``cache`` the last level.
    ``array`` is the side of its systolic arrays, of which narrower products leave rows idle."""

    units: MaybeCount = None
    array: MaybeCount = None
    attention_block: MaybeCount = None
    """Tokens along a block of the chip's usual flash attention kernel, where they are more than FlashAttention's."""
    attention_products: AttentionProducts = None
    """Products of that kernel's backward, where they are more than FlashAttention's five."""
    cores: MaybeCount = None
    """Cores that work as one device and share the blocks of that kernel (megacore), where there are several."""
    exponentials: MaybeCount = None
    """Exponentials that a unit computes per clock, where they are not the usual 16."""
    clock: MaybeHertz = None
    cache: MaybeBytes = None


class Accelerator(Sourced):
    """An accelerator as its datasheet and its driver describe it; a figure nobody states is None, never a guess."""

    name: str
    aliases: tuple[str, ...] = ()
    based_on: str = ""
    """The accelerator preset of which it has all that it does not state itself (preset_bases.py); blank: none."""
    vendor: str
    architecture: str = Field(pattern=r"\S")
    """Its generation in one word, and which of its dies where they differ: ``ampere ga102``."""
    treated_like: str = ""
    """The known architecture whose kernels, library tables and fitted numbers stand for those of its own."""
    traits: Architecture | None = None
    """What its architecture's preset has of another value for this chip alone."""
    off: str = ""
    """What measured runs say of step times on it, where these are known to be off; a note tells it."""
    year: int | None = None
    notes: str = ""
    memory: Bytes
    """The capacity on the label."""
    usable_memory: MaybeBytes = None
    """What the driver reports to programs as their total (cudaMemGetInfo), in which their context lies, too; smaller
    than the label."""
    devices: MaybeCount = None
    """Devices that programs see in it, each a rank with its share of the memory, where they see several."""
    device: str = ""
    """The preset of one of these, if there is one."""
    bandwidth: ByteRate
    power: MaybeChipWatts = None
    rated_power: MaybeChipWatts = None
    """Power of the same chip without the limit that ``power`` is; ``measured`` then holds for that one."""
    power_profile: str = ""
    """Measured draw of such chips, by the name of a preset of kind ``power``; blank: that of all others."""
    default_cluster: str | None = None
    peak: Peak
    link: ScaleUpLink | None = None
    host: HostLink | None = None
    measured: Measured = Measured()
    chip: Chip = Chip()

    @model_validator(mode="after")
    def _usable_fits_label(self) -> Self:
        if self.usable_memory is not None and self.usable_memory > self.memory:
            usable, label = gib(self.usable_memory), gib(self.memory)
            raise ValueError(f"usable_memory {usable} is more than memory {label} on the label")
        return self

    @field_validator("vendor")
    @classmethod
    def _as_known(cls, value: str) -> str:
        """Case tells no vendor from another: rules go by it."""
        return next((name for name in VENDORS if name.casefold() == value.strip().casefold()), value)

    @field_validator("architecture", "treated_like")
    @classmethod
    def _one_spelling(cls, value: str) -> str:
        """Case and blanks tell no architecture from another."""
        return " ".join(value.lower().split())

    @field_validator("traits")
    @classmethod
    def _figures_alone(cls, value: Architecture | None) -> Architecture | None:
        """What traits differ from is told by its architecture, and their sources beside others'."""
        if value is not None and (others := value.told_of_file()):
            told = "architecture and treated_like state what a chip is like, [source] its sources"
            raise ValueError(f"traits cannot state {', '.join(others)}; {told}")
        return value

    @property
    def treated(self) -> str:
        """The architecture that it is treated like: its own unless its preset names another."""
        return self.treated_like or self.architecture

    @property
    def generation(self) -> str:
        """The architecture's name without its die, as in ``hopper`` of ``hopper gh100``."""
        return self.treated.split()[0]

    @property
    def own_generation(self) -> str:
        """Its architecture without its die, whatever it is treated like: whether any run is known on such chips."""
        return self.architecture.split()[0]

    @property
    def copy_bandwidth(self) -> float:
        """Bytes per second that a copy in its memory reaches."""
        return self.bandwidth * (self.measured.copy_fraction or COPY_FRACTION)

    @property
    def pass_bandwidth(self) -> float:
        """Bandwidth in bytes per second of a chip as fast as this one whose copies reach the usual share of it: what
        passes through memory are a share of ("stream" in presets/timing/fitted.toml)."""
        return self.copy_bandwidth / COPY_FRACTION

    @property
    def capacity(self) -> int:
        """Bytes a program can be given: what the driver reports, or the label where nobody reported it."""
        return self.usable_memory if self.usable_memory is not None else self.memory

    def limit(self, margin: float) -> float:
        """Bytes of the capacity less the share that stays free."""
        return self.capacity * (1 - margin)
