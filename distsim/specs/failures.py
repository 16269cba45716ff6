"""How often machines of one kind fail, as somebody counted it, and how long they took to come back."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from distsim.specs.base import Sourced
from distsim.specs.quantity import Count, MaybeCount, MaybeNatural, MaybePositive, Ratio, Seconds
from distsim.units import YEAR

LONGEST = 100 * YEAR
"""Seconds; longer windows, restarts and repairs are slips of a unit."""


class Failures(Sourced):
    """Interruptions of training: a count over a window, a rate per node and day, or a mean time per accelerator."""

    name: str
    aliases: tuple[str, ...] = ()
    notes: str = ""
    gpu: str | None = None
    gpus: MaybeCount = None
    gpus_per_node: Count = 8
    window: Annotated[Seconds, Field(gt=0, le=LONGEST)] | None = None
    unplanned: MaybeNatural = None
    planned: MaybeNatural = None
    kinds: dict[str, int] = Field(default_factory=dict)
    """Unplanned interruptions by cause; they add up to ``unplanned``."""
    per_node_day: Annotated[Ratio, Field(gt=0, le=10)] | None = None
    hours_per_failure: MaybePositive = None
    """Accelerator-hours between failures."""
    restart: Annotated[Seconds, Field(le=LONGEST)] | None = None
    """From the failure to the first new step: detection, diagnosis, replacement, loading."""
    repair: Annotated[Seconds, Field(le=LONGEST)] | None = None
    """Until a failed node can be used again; matters when there is no spare."""

    @model_validator(mode="after")
    def _says_one_rate(self) -> Self:
        counted = self.unplanned is not None and self.gpus is not None and self.window is not None
        ways = [counted, self.per_node_day is not None, self.hours_per_failure is not None]
        if sum(ways) != 1:
            raise ValueError(
                f"{sum(ways)} failure rates are stated; state one: unplanned with gpus and window, per_node_day, "
                "or hours_per_failure"
            )
        if self.kinds and sum(self.kinds.values()) != self.unplanned:
            raise ValueError(f"kinds add up to {sum(self.kinds.values())}, but unplanned says {self.unplanned}")
        return self
