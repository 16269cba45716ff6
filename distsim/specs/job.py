"""A job as the user states it: the options of the command line with underscores, open ones left as None."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from distsim.specs.base import Spec
from distsim.specs.model import Model

LARGEST_DEGREE = 10_000_000  # beyond any machine: a typing slip, not a plan


def _degree(**more: Any) -> Any:
    return Field(default=None, ge=1, le=LARGEST_DEGREE, **more)


class Job(Spec):
    """What to run, on what, laid out how. Every open (None) field is filled by the framework's or distsim's default."""

    model: str | Model
    gpu: str | None = None
    gpus: int | None = _degree()
    cluster: str | None = None
    framework: str = "megatron-core"

    tp: int | None = _degree()
    pp: int | None = _degree()
    cp: int | None = _degree()
    ep: int | None = _degree()
    etp: int | None = _degree()
    dp: int | None = _degree()
    vpp: int | None = _degree()
    schedule: str | None = None
    stage_layers: tuple[int, ...] | None = None
    """Layers on each pipeline stage, for uneven splits."""
    zero: Literal[0, 1, 2, 3] | None = None
    zero_group: int | None = _degree()
    sequence_parallel: bool | None = None

    seq: int | None = Field(default=None, ge=1, le=1_000_000_000)
    micro_batch: int | None = _degree()
    global_batch: int | None = Field(default=None, ge=1, le=1_000_000_000)
    recompute: Literal["none", "selective", "full"] | None = None
    recompute_layers: int | None = Field(default=None, ge=1, le=1_000_000)
    attention: Literal["flash", "eager"] | None = None
    dropout: bool | None = None
    """False drops the model's dropout (its masks are memory); by default the model's own rates hold."""
    precision: str | None = None
    optimizer: str | None = None
    offload: str | None = None
    offload_to: Literal["cpu", "nvme"] | None = None
    lora_rank: int | None = _degree()
    quantize: Literal["none", "int8", "nf4"] | None = None

    @field_validator("stage_layers", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """``7,8,8,9`` as a person writes it on the command line."""
        if isinstance(value, str):
            parts = value.replace(",", " ").split()
            if not parts or not all(part.isdigit() for part in parts):
                raise ValueError(f"stage_layers {value!r} is not a list of layer counts such as 7,8,8,9")
            return tuple(int(part) for part in parts)
        return value
