"""What files of kind ``timing`` may hold, for those of a user's own: the shipped ones are held against it by tests, so
that no start pays for it."""

from typing import Annotated, Any

from pydantic import Field, create_model

from distsim.specs.base import Sourced, Spec
from distsim.specs.quantity import Amount, Count, Once
from distsim.specs.timing import NAMES, Timing

Factor = Annotated[float, Once(Field(ge=0.01, le=100))]
"""On a number of ``Timing``: assumed, far beyond the 0.66 to 1.9 that were fitted."""
Logarithm = Annotated[float, Once(Field(ge=-10, le=10))]
"""Of a ratio of times: exp(10) is 22,000."""
_numbers: dict[str, Any] = dict.fromkeys(NAMES, (Factor, 1.0))
Factors = create_model("Factors", __base__=Spec, **_numbers)
"""What an architecture, a family or a framework multiplies the general numbers by."""


class FrameworkFactors(Factors):  # type: ignore[valid-type, misc]
    """Those of a framework: ``set`` holds numbers instead of the general ones, ``on`` factors by architecture."""

    set: Timing = Timing()
    on: dict[str, Factors] = Field(default_factory=dict)  # type: ignore[valid-type]


class Fitted(Sourced):
    """``fitted.toml``."""

    general: Timing
    architecture: dict[str, Factors] = Field(default_factory=dict)  # type: ignore[valid-type]
    family: dict[str, Factors] = Field(default_factory=dict)  # type: ignore[valid-type]
    framework: dict[str, FrameworkFactors] = Field(default_factory=dict)


class Known(Spec):
    """The architectures that runs were fitted on."""

    fitted: tuple[str, ...]


class Spread(Spec):
    """Logarithms that a share of runs lies between, of so many runs."""

    runs: Count
    sources: Count = 1
    over: Logarithm
    under: Logarithm
    half_over: Logarithm = 0.0
    half_under: Logarithm = 0.0


class Residuals(Sourced):
    """``residuals.toml``."""

    architectures: Known
    groups: dict[str, Spread]
    own: dict[str, Count] = Field(default_factory=dict)
    """Settings of a user's own runs under each framework."""


class Quantiles(Spec):
    """Measured over predicted peaks, from the least to the largest."""

    runs: Count
    sources: Count
    at: Annotated[tuple[Amount, ...], Field(min_length=2)]


class Peaks(Sourced):
    """``peaks.toml``."""

    measured_over_predicted: Quantiles


class Pace(Sourced):
    """``pace.toml``."""

    stretch: Factor
    left_out_error: Amount
    over: Logarithm
    under: Logarithm


FILES: dict[str, type[Sourced]] = {"fitted": Fitted, "residuals": Residuals, "peaks": Peaks, "pace": Pace}
"""The specs of such files by their names."""
