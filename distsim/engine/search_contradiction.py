"""Why a search has no layout at all: the constraints that contradict each other, and what the others would allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsim.engine.resolve import Setup
from distsim.engine.search_bounds import Bounds
from distsim.engine.search_space import Group, groups
from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.engine.search import Request


def contradiction(request: Request, base: Setup, batch: int) -> DistsimError:
    """Which of the constraints leave no layout, and what the others would allow."""
    bounds, gpus = request.bounds, max(request.gpus)
    stated = [f"--{name.replace('_', '-')} {bound.text}" for name, bound in bounds.given.items()]
    stated += ["--exclude"] * bool(bounds.excluded)
    hints = []
    for name, bound in bounds.given.items():
        others = {key: value for key, value in bounds.given.items() if key != name}
        allowed = values_of(list(groups(base, gpus, batch, Bounds(others, bounds.excluded))), name)
        if allowed:
            shown = ", ".join(map(str, allowed[:12])) + (", …" if len(allowed) > 12 else "")
            hints.append(f"instead of --{name.replace('_', '-')} {bound.text}, the rest would allow: {shown}")
    if bounds.excluded and any(True for _ in groups(base, gpus, batch, Bounds(bounds.given))):
        hints.append("without --exclude there are layouts")
    if not hints:
        hints.append(f"each degree has to divide {gpus} GPUs, and dp times the micro-batch the global batch of {batch}")
    constraints = " ".join(stated) or "the rules"
    return DistsimError(
        f"no layout of {base.model.name} on {gpus} GPUs with a global batch of {batch} obeys {constraints}", *hints
    )


def values_of(found: list[Group], name: str) -> list[Any]:
    """The values of a dimension that occur in groups of layouts."""
    import numpy

    values: set[Any] = set()
    for group in found:
        y = group.setup.layout
        if name == "recompute":
            values |= {"none", "selective", "full"}
        elif name == "sequence_parallel":
            values |= {"on" if value else "off" for value in numpy.unique(y.sequence_parallel)}
        else:
            value = getattr(y, name, None)
            if value is not None:
                values |= set(numpy.unique(value).tolist())
    return sorted(values)
