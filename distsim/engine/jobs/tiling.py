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


def check_tiles(options: Mapping[str, Any], model: Model) -> None:
    """Raise DistsimError for tiles of what a model has not, and beside adapters, which no row here tiles."""
    stated = options["mlp_tiles"]
    if stated is None:
        return
    if not has_dense_mlp(model):
        raise DistsimError(f"--mlp-tiles {stated} has no effect: {model.name} has experts and no dense MLP",
                           "leave it out")  # fmt: skip
    if options["lora_rank"] is not None:
        raise DistsimError(f"--mlp-tiles {stated} with --lora-rank: adapters of tiled MLPs are not described",
                           "leave one of them out")  # fmt: skip
