"""What a framework moves to host memory, and what of a job it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.specs.layout import EVERY_LAYER, OFFLOADS, Layout

if TYPE_CHECKING:
    from distsim.arrays import Number
    from distsim.specs.support import Supports


def offload_named(value: str) -> str:
    """What is offloaded, in the canonical order; ``none`` stands alone. A plus joins, as in a search, where a comma
    means either."""
    words = value.replace(",", " ").replace("+", " ").lower().split()
    unknown = [word for word in words if word not in (*OFFLOADS, "none")]
    if unknown or not words or ("none" in words and len(words) > 1):
        from distsim.other_choices import choice_meant

        near = choice_meant(unknown[0], (*OFFLOADS, "none")) if unknown else ""
        choices = f"choices: none, {', '.join(OFFLOADS)}, joined by commas"
        raise ValueError(f"{value!r} is not a choice; {near or choices}")
    return ",".join(word for word in (*OFFLOADS, "none") if word in words)


def offload_words(supports: Supports) -> str:
    """What may leave the GPU, in words."""
    words: list[str] = list(supports.offload)
    if supports.offload_optimizer == "with parameters" and "parameters" in words:
        words[:2] = ["optimizer with parameters"]
    elif supports.offload_optimizer == "with parameters" and words:
        words[:1] = ["optimizer on one GPU"]
    return ", ".join(words) or "nothing"


def leaves(supports: Supports, offload: tuple[str, ...], gpus: int) -> bool:
    """Whether a framework moves all of ``offload``, and nothing else, to host memory."""
    return not _kept(supports, offload) and not _parted(supports, offload, gpus)


def _kept(supports: Supports, offload: tuple[str, ...]) -> list[str]:
    return [kind for kind in offload if kind not in supports.offload]


def _parted(supports: Supports, offload: tuple[str, ...], gpus: int) -> bool:
    """Whether parameters or optimizer would leave without the other where both are shards of one."""
    moved = {"optimizer", "parameters"}.intersection(offload)
    return supports.offload_optimizer == "with parameters" and (
        moved == {"parameters"} or (moved == {"optimizer"} and gpus > 1)
    )


def states_leave(supports: Supports, offload: tuple[str, ...], layout: Layout) -> Number:
    """Whether optimizer states, if they are offloaded, are sharded as a framework needs it."""
    return ("optimizer" not in offload) | (layout.zero >= supports.offload_zero)


def layers_leave(supports: Supports, offload: tuple[str, ...], layout: Layout, modules: bool) -> Number:
    """Whether activations of whole layers, if they are offloaded, go with the rest of a layout; ``modules`` tells that
    only those of modules are."""
    if "activations" not in offload or modules or supports.offload_layers == "anywhere":
        return True
    if supports.offload_layers == "checkpoints":
        return layout.recompute_layers == EVERY_LAYER
    return (layout.pp == 1) & (layout.selective == 0) & (layout.recompute_layers == 0)


def offload_problems(
    name: str, supports: Supports, offload: tuple[str, ...], layout: Layout, modules: bool
) -> list[tuple[str, str]]:
    """What a framework does not move to host memory of one layout, each with what it does."""
    found = [(f"{name} does not offload {kind}", f"it offloads: {offload_words(supports)}")
             for kind in _kept(supports, offload)]  # fmt: skip
    found = found or _parted_problem(name, supports, offload, layout.gpus)
    if not found and not states_leave(supports, offload, layout):
        least = supports.offload_zero
        found.append((f"{name} offloads optimizer states only under ZeRO {least} or more, but --zero is {layout.zero}",
                      f"add --zero {least}"))  # fmt: skip
    if not found and not layers_leave(supports, offload, layout, modules):
        if supports.offload_layers == "checkpoints":
            problem = f"{name} offloads checkpoints alone, of layers that are all computed again"
            return [(problem, "add --recompute full, or leave --offload activations out")]
        why = [f"pp is {layout.pp}"] if layout.pp > 1 else []
        why += ["activations are recomputed"] if layout.selective or layout.recompute_layers else []
        found.append((
            f"{name} offloads activations of layers only without pipeline stages and recomputation, but "
            f"{' and '.join(why)}",
            "name --offload-modules, e.g. core_attn,attn_proj, which go with both, or leave --offload activations out",
        ))  # fmt: skip
    return found


def _parted_problem(name: str, supports: Supports, offload: tuple[str, ...], gpus: int) -> list[tuple[str, str]]:
    """What is offloaded without what goes with it, and what to move instead."""
    if not _parted(supports, offload, gpus):
        return []
    if "parameters" not in supports.offload:
        mend = "use fsdp with --zero 3 --offload optimizer+parameters, or deepspeed with --zero 1"
        return [(f"{name} keeps optimizer states on each of {gpus} GPUs", mend)]
    both = "+".join(kind for kind in OFFLOADS if kind in {*offload, "optimizer", "parameters"})  # of a search, too
    problem = f"{name} offloads optimizer and parameters together, not one without the other"
    return [(problem, f"use --zero 3 --offload {both}")]
