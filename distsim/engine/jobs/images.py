"""What a job's images are: their patches, the tokens they take of a sequence, and what of the vision tower trains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distsim.errors import DistsimError
from distsim.specs.flags import flag
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.vision import ADAPTERS, ALONE

if TYPE_CHECKING:
    from distsim.specs.tower import Tower

OPTIONS = ("images", "image_size", "vision")
SIZE = re.compile(r"(\d{1,6})(?:\s*[x×*,]\s*(\d{1,6}))?")
"""Height and width of an image, or the side of a square one."""
WITHOUT = (
    "{}: the text decoder alone is counted, without its vision tower; --images 1 counts that, with one image per "
    "sequence"
)

ON_DECODER = (
    "adapters are on the decoder alone; software that finds modules by their names (q_proj) puts them on a tower, too: "
    "--vision adapters"
)


def with_images(model: Model, filled: Mapping[str, Any]) -> Model:
    """The model as its images ask; raises DistsimError for options that nothing reads, or images that do not fit."""
    stated = [name for name in OPTIONS if filled[name] is not None]
    if not stated:
        return model
    typed = f"{flag(stated[0])} {_shown(filled[stated[0]])}"
    if model.tower is None:
        raise DistsimError(f"{typed}: {model.name} has no vision tower that is described", *_others(model))
    if not filled["images"]:
        raise DistsimError(f"{typed} has no effect without images", "add --images 1, the mean of a sequence")
    tower: Tower = model.tower
    if filled["vision"] == ALONE and filled["lora_rank"]:
        raise DistsimError(f"--vision {ALONE} trains no adapters, but --lora-rank is {filled['lora_rank']}",
                           "use --vision projector, beside which adapters train")  # fmt: skip
    if filled["vision"] == ADAPTERS and not filled["lora_rank"]:
        raise DistsimError(f"--vision {ADAPTERS} has no effect without adapters", "add --lora-rank 16")
    height, width = _pixels(filled["image_size"], tower, model.name)
    vision = filled["vision"] or ("frozen" if filled["lora_rank"] else "trained")
    seen = tower.patches_of(height, width)
    own = {"images": float(filled["images"]), "seen": seen, "trains": vision}
    return model.model_copy(update={"tower": tower.model_copy(update=own)})


def check_images(model: Model, layout: Layout) -> None:
    """Raise DistsimError where the images of a sequence are longer than it."""
    tower: Tower | None = model.tower
    if tower is None or not tower.images or tower.image_tokens <= layout.seq:
        return
    each = tower.tokens_of(tower.seen)
    most = layout.seq // each
    raise DistsimError(
        f"{tower.images:g} images of {each:,} tokens each do not fit into a sequence of {layout.seq:,}",
        f"use --seq {round(tower.image_tokens):,} or more".replace(",", "")
        + (f", or --images {most}" if most else "") + ("" if tower.fixed else ", or a smaller --image-size"),
    )  # fmt: skip


def image_notes(model: Model, size: str | None, tuned: bool) -> list[str]:
    """What a user should know of the images of a job, whose ``size`` in pixels it may state."""
    tower: Tower | None = model.tower
    if tower is None:
        return []
    if not tower.images:
        return [WITHOUT.format(model.name)]
    each = tower.tokens_of(tower.seen)
    trains = {
        "trained": "all of it trains",
        "projector": "of it only the projector trains",
        "frozen": "it is frozen",
        ALONE: "of the whole model only its projector trains",
        ADAPTERS: "adapters are on its layers, too",
    }
    tokens = f"{tower.seen:,} patches, {each:,} token{'s' * (each > 1)} of the sequence"
    pixels = "" if size else f" of {tower.image} x {tower.image} pixels" + (" (--image-size)" * (not tower.fixed))
    notes = [f"each image{pixels} is {tokens} for {model.name}; its vision tower runs before the first stage's layers, "
             f"and {trains[tower.trains]}"]  # fmt: skip
    if tuned and tower.trains == "frozen":
        notes.append(ON_DECODER)
    return notes


def images_of(model: Model) -> dict[str, Any]:
    """The resolved options for JSON; nothing without images."""
    tower: Tower | None = model.tower
    if tower is None or not tower.images:
        return {}
    return {"images": tower.images, "image_patches": tower.seen, "image_tokens": tower.tokens_of(tower.seen),
            "vision": tower.trains}  # fmt: skip


def _others(model: Model) -> list[str]:
    if model.beside:
        return [f"of {model.name} the text decoder is described, without {', '.join(model.beside)}"]
    return ["models with one: qwen2.5-vl-7b, qwen3-vl-8b, gemma-3-4b"]


def _pixels(stated: str | None, tower: Tower, name: str) -> tuple[int, int]:
    if stated is None:
        return tower.image, tower.image
    match = SIZE.fullmatch(stated.strip().lower().removesuffix("px").strip())
    if match is None or not int(match[1]) or match[2] == "0":
        raise DistsimError(f"--image-size {stated!r} is no size in pixels", "write height x width: 448x672, or 448")
    height, width = int(match[1]), int(match[2] or match[1])
    if tower.fixed and (height, width) != (tower.image, tower.image):
        raise DistsimError(
            f"--image-size {stated}: {name} scales every image, or each tile of one, to {tower.image}x{tower.image}",
            "leave --image-size out; state an image in four tiles as --images 4",
        )
    return height, width


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
