"""In how many tiles of tokens a job's dense MLPs run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.arrays import Number
from distsim.errors import DistsimError
from distsim.layers.tiles import usual_tiles
from distsim.specs.job import Job
from distsim.specs.layout import Layout
from distsim.specs.model import Model


def tiles_of(job: Job, layout: Layout, model: Model) -> Number | None:
    """The tiles of a rank's sequence; None where MLPs run on all of it at once."""
    if job.mlp_tiles != "auto":
        return job.mlp_tiles
    return usual_tiles(layout.seq / layout.cp, model.hidden)


def has_dense_mlp(model: Model) -> bool:
    """Whether any layer has an MLP of all tokens that no experts take the place of."""
    return model.experts is None or bool(model.experts.dense_layers or model.experts.beside_dense)


def tile_notes(options: Mapping[str, Any], model: Model, layout: Layout) -> list[str]:
    """A note on tiles that are shorter than a model is wide, as ``auto`` makes none. Raises DistsimError for tiles of
    what a model has not, of less than a token, and beside adapters, which no row here tiles."""
    stated = options["mlp_tiles"]
    if stated is None:
        return []
    if not has_dense_mlp(model):
        raise DistsimError(f"--mlp-tiles {stated} has no effect: {model.name} has experts and no dense MLP",
                           "leave it out")  # fmt: skip
    if options["lora_rank"] is not None:
        raise DistsimError(f"--mlp-tiles {stated} with --lora-rank: adapters of tiled MLPs are not described",
                           "leave one of them out")  # fmt: skip
    tokens = int(layout.seq // layout.cp)
    if stated == "auto" or stated <= usual_tiles(tokens, model.hidden):
        return []
    if stated > tokens:
        raise DistsimError(
            f"--mlp-tiles {stated}: a rank's sequence has only {tokens:,} tokens", "fewer tiles, or auto"
        )
    return [
        f"tiles of {tokens // stated:,} tokens are shorter than the model is wide: their products are timed as at full "
        "speed, which such short ones do not reach"
    ]
