"""Why a search has no layout at all: the constraints that contradict each other, and what the others would allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distsim.engine.footprint.host import drive_capacity
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.bounds import WORDS, Bounds
from distsim.engine.layouts.recomputed import selective_word
from distsim.engine.layouts.space import Group, groups
from distsim.errors import DistsimError
from distsim.specs.flags import flag
from distsim.specs.layout import Layout
from distsim.specs.support import Supports
from distsim.specs.support_rules import unsupported
from distsim.units import gib

if TYPE_CHECKING:
    from distsim.engine.layouts.report import Request


def contradiction(request: Request, base: Setup, batches: Sequence[int]) -> DistsimError:
    """Which of the constraints leave no layout, and what the others would allow."""
    bounds, gpus = request.bounds, max(request.gpus)
    batch = " or ".join(map(str, batches))

    def allowed_by(some: Bounds, setup: Setup = base) -> list[Group]:
        return [group for one in batches for group in groups(setup, gpus, one, some, WORDS["schedule"])]

    stated = [f"{flag(name)} {bound.text}" for name, bound in bounds.given.items()]
    stated += [f"--exclude '{' '.join(f'{name}={bound.text}' for name, bound in rule.items())}'"
               for rule in bounds.excluded]  # fmt: skip
    if base.offload and base.cluster.host_memory is not None and allowed_by(bounds):
        drives = drive_capacity(base)
        further = "" if drives is None else f", or more than the {gib(drives)} of its drives"
        return DistsimError(
            f"every layout of {base.model.name} on {gpus} GPUs needs more than the {gib(base.cluster.host_memory)} of "
            f"host memory of a {base.cluster.name} node{further}",
            "use more GPUs, offload less, or name a --cluster whose nodes have more",
        )
    hints = _others_allow(bounds, allowed_by)
    if bounds.excluded and allowed_by(Bounds(bounds.given)):
        hints.append("without --exclude there would be layouts")
    for name in ("expert_overlap", "cuda_graphs"):
        unasked = replace(base, job=base.job.model_copy(update={name: None}))
        if getattr(base.job, name) is not None and allowed_by(bounds, unasked):
            hints.append(f"without {flag(name, getattr(base.job, name))} there would be layouts")
    open_framework = base.framework.model_copy(update={"supports": Supports()})
    anywhere = allowed_by(bounds, replace(base, framework=open_framework))
    if anywhere:
        hints.insert(0, lacking(base, anywhere[0]))
    if not hints:
        hints.append(
            f"each degree must divide {gpus} GPUs, and dp times the micro-batch must divide the global batch of {batch}"
        )
        if "vpp" in bounds.given or "schedule" in bounds.given:
            hints.append("interleaved schedules are tried only with at least as many micro-batches as stages")
    constraints = " ".join(stated) or "the rules"
    return DistsimError(
        f"no layout of {base.model.name} on {gpus} GPUs with a global batch of {batch} satisfies {constraints}", *hints
    )


def _others_allow(bounds: Bounds, allowed_by: Callable[[Bounds], list[Group]]) -> list[str]:
    """What the other constraints would allow in place of each one."""
    hints = []
    for name, bound in bounds.given.items():
        others = {key: value for key, value in bounds.given.items() if key != name}
        found = allowed_by(Bounds(others, bounds.excluded))
        allowed = values_of(found, name)
        if found and not allowed:
            hints.append(f"without {flag(name)} {bound.text} there would be layouts")
        if allowed:
            shown = ", ".join(map(str, allowed[:12])) + (", …" if len(allowed) > 12 else "")
            hints.append(f"instead of {flag(name)} {bound.text}, the other constraints would allow: {shown}")
    return hints


def lacking(base: Setup, group: Group) -> str:
    """What the framework does not run of a layout that is otherwise allowed."""
    import numpy

    place = tuple(int(i) for i in numpy.argwhere(numpy.broadcast_to(group.valid, group.shape))[0])
    one = Layout(**group.layout_at(place))
    framework = base.framework
    return "; ".join(
        rule.problem(framework.name, framework.supports, base.model, one)
        for rule in unsupported(framework.supports, base.model, one)
    )


def values_of(found: list[Group], name: str) -> list[Any]:
    """The values of a dimension that occur in groups of layouts."""
    import numpy

    values: set[Any] = set()
    for group in found:
        layout = group.setup.layout
        if name == "recompute":
            kinds = {
                "none": (layout.selective == 0) & (layout.recompute_layers == 0),
                selective_word(group.setup): layout.selective != 0, "full": layout.recompute_layers != 0,
            }  # fmt: skip
            values |= {word for word, held in kinds.items() if (group.valid & held).any()}
        elif name == "sequence_parallel":
            values |= {"on" if value else "off" for value in numpy.unique(layout.sequence_parallel)}
        else:
            value = getattr(layout, name, None)
            if isinstance(value, numpy.ndarray):
                alone = tuple(axis for axis, size in enumerate(value.shape) if size == 1)
                some = numpy.broadcast_to(group.valid, group.shape).any(axis=alone, keepdims=True)
                values |= set(value[numpy.broadcast_to(some, value.shape)].tolist())
            elif value is not None:
                values.add(value)
    if name == "recompute_layers":
        values -= {-1, 0}  # all layers and none, which have no number to type
    return sorted(values)
