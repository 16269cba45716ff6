"""What a framework moves to host memory, and what of a job it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.specs.layout import OFFLOADS

if TYPE_CHECKING:
    from distsim.specs.support import Supports


def offload_named(value: str) -> str:
    """What is offloaded, in the canonical order; ``none`` stands alone."""
    words = value.replace(",", " ").lower().split()
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
    elif supports.offload_optimizer == "with parameters":
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


def offload_problems(name: str, supports: Supports, offload: tuple[str, ...], gpus: int) -> list[tuple[str, str]]:
    found = [(f"{name} does not offload {kind}", f"it offloads: {offload_words(supports)}")
             for kind in _kept(supports, offload)]  # fmt: skip
    if found or not _parted(supports, offload, gpus):
        return found
    if "parameters" not in supports.offload:
        mend = "use fsdp with --zero 3 --offload optimizer,parameters, or deepspeed with --zero 1"
        return [(f"{name} keeps optimizer states on each of {gpus} GPUs", mend)]
    both = ",".join(kind for kind in OFFLOADS if kind in {*offload, "optimizer", "parameters"})
    problem = f"{name} offloads optimizer and parameters together, not one without the other"
    return [(problem, f"use --zero 3 --offload {both}")]
