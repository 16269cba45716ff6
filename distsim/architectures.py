"""What holds for an accelerator by its architecture: its preset's own traits, over those of what it is like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim import catalog
from distsim.errors import DistsimError, did_you_mean
from distsim.preset_files import plain

if TYPE_CHECKING:
    from distsim.specs.accelerator import Accelerator
    from distsim.specs.architecture import Architecture

KIND = "architectures"


def traits_of(chip: Accelerator) -> Architecture:
    """What an accelerator's own preset says of its kind, and for the rest its die's preset, its architecture's or, of
    an architecture that nobody described, its maker's."""
    found: Architecture = catalog.once((KIND, chip.treated, chip.vendor, chip.traits), lambda: _traits(chip))
    return found


def described(architecture: str) -> bool:
    """Whether a preset of its own tells of an architecture or a die."""
    return catalog.knows(KIND, plain(architecture))


def _traits(chip: Accelerator) -> Architecture:
    if chip.treated_like and not described(chip.treated_like):
        known = catalog.names(KIND)
        near = did_you_mean(plain(chip.treated_like), known) or f"known: {', '.join(known)}"
        raise DistsimError(f"treated_like {chip.treated_like!r} of {chip.name} is not a known architecture", near)
    shared = next((_whole(name) for name in (chip.treated, chip.generation, chip.vendor) if described(name)), None)
    if shared is None:
        from distsim.specs.architecture import Architecture

        shared = Architecture()
    return chip.traits.over(shared) if chip.traits is not None else shared


def _whole(name: str, below: tuple[str, ...] = ()) -> Architecture:
    """A preset with the figures of what it is like, and of what that is like."""
    own: Architecture = catalog.load(KIND, plain(name))
    if not own.like:
        return own
    if own.name in below:
        raise DistsimError(f"architectures refer to each other by like: {' -> '.join((*below, own.name))}",
                           "let one of them state its own figures, without like")  # fmt: skip
    return own.over(_whole(own.like, (*below, own.name)))
