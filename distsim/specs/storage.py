"""A storage system that checkpoints go to."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from distsim.specs.base import Sourced
from distsim.specs.quantity import Bytes, BytesPerSecond


class Storage(Sourced):
    """Rates of the whole system, or per accelerator with a floor and a cap where only that is known."""

    name: str
    aliases: tuple[str, ...] = ()
    notes: str = ""
    capacity: Bytes | None = None
    write_rate: BytesPerSecond | None = None
    read_rate: BytesPerSecond | None = None
    write_rate_per_gpu: Annotated[BytesPerSecond | None, Field()] = None
    least_write_rate: BytesPerSecond | None = None
    most_write_rate: BytesPerSecond | None = None

    @model_validator(mode="after")
    def _can_write(self) -> Self:
        if (self.write_rate is None) == (self.write_rate_per_gpu is None):
            raise ValueError("state write_rate of the whole system, or write_rate_per_gpu with its floor and cap")
        return self
