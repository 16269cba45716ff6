"""What a framework's own recipes set for some models, chips and precisions, since some release."""

from typing import Any

from pydantic import Field

from distsim.specs.base import Spec
from distsim.specs.model import Model
from distsim.specs.quantity import Amount, MaybeAmount


class Recipe(Spec):
    """Kernels that hold where all that is stated here fits; what is left out fits everything."""

    since: Amount = 0.0
    """The first release that has them, as a year with its months as a fraction; earlier runs are replayed without."""
    until: MaybeAmount = None
    """The first release that does not have them any more."""
    architectures: tuple[str, ...] = ()
    """First words of the accelerator's architecture."""
    gpus: tuple[str, ...] = ()
    """Names of accelerators."""
    precisions: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    """Families of models."""
    shapes: tuple[tuple[int, int], ...] = ()
    """Layers and hidden width of models, which with the family tell one whatever it is called."""
    experts: bool | None = None
    """Whether the model has experts."""
    predictions: bool | None = None
    """Whether the model has layers of multi-token prediction."""
    library: bool = False
    """What a library's own recipe sets, which its performance scripts set otherwise: only replays of runs that name
    such a recipe use it."""
    kernels: dict[str, Any] = Field(default_factory=dict)
    replayed: dict[str, str] = Field(default_factory=dict)
    """Recipes of precision that its runs had by those that their source names; only replays use it, whatever the model
    and chip."""
    again: tuple[str, ...] | None = None
    """Operations, or kinds of them, that its runs compute again; only replays of rows that do not say use it."""
    cp_mode: str = ""
    """How its context parallel ranks exchange (``Job.cp_mode``); only replays of rows that do not say use it."""

    def released(self, year: float) -> bool:
        """Whether software of a year, with its months as a fraction, has them."""
        return self.since <= year and (self.until is None or year < self.until)

    def fits(self, chip: tuple[str, str], precision: str, model: Model) -> bool:
        """Whether a job on a chip, by its architecture and name, in this precision, with this model is meant."""
        architecture, name = chip
        return (
            (not self.architectures or architecture.split()[0] in self.architectures)
            and (not self.precisions or precision in self.precisions)
            and (not self.gpus or name in self.gpus)
            and (not self.families or model.family in self.families)
            and (not self.shapes or (model.layers, model.hidden) in self.shapes)
            and self.experts in (None, model.experts is not None)
            and self.predictions in (None, model.mtp_layers > 0)
        )
