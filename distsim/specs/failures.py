"""How often machines of one kind fail, as somebody counted it, and how long they took to come back."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from distsim.specs.base import Sourced
from distsim.specs.quantity import Count, MaybeCount, MaybeNatural, Once, Ratio, Seconds
from distsim.units import HOUR, YEAR, duration

LONGEST = 100 * YEAR
"""Seconds; longer windows are slips of a unit."""
LONGEST_REPAIR = YEAR
"""Seconds; longer restarts and repairs are slips of a unit."""
LEAST_HOURS, MOST_HOURS = 1, 1_000_000_000
"""Accelerator-hours between failures: what fails more often trains nothing, and nobody has counted more."""


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
    hours_per_failure: Annotated[float | None, Once(Field(ge=LEAST_HOURS, le=MOST_HOURS))] = None
    """Accelerator-hours between failures."""
    restart: Annotated[Seconds, Field(le=LONGEST_REPAIR)] | None = None
    """From the failure to the first new step: detection, diagnosis, replacement, loading."""
    repair: Annotated[Seconds, Field(le=LONGEST_REPAIR)] | None = None
    """Until a failed node can be used again; where nobody says, that of the default preset counts."""

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
        self._refuse_too_often()
        return self

    def _refuse_too_often(self) -> None:
        """A count in a window so short that nothing could be trained is a slip of its unit."""
        if not self.unplanned or self.gpus is None or self.window is None:
            return
        hours = self.window / HOUR * self.gpus / self.unplanned
        if hours < LEAST_HOURS:
            raise ValueError(
                f"{self.unplanned:,} failures of {self.gpus:,} accelerators in {duration(self.window)} are one every "
                f"{hours:.2g} accelerator-hours, which is too often to be meant"
            )
