"""How a user's own runs are compared with the user's jobs: by what costs time, since one cluster ran both. A table says
bf16 where a job's default is another recipe of bf16; what they share is the cluster."""

from __future__ import annotations

from distsim import catalog
from distsim.errors import DistsimError
from distsim.last import while_same

OWN = "own: "
"""Marks sources of the user's own runs in tables of evidence: a job of the user's is another run of these."""
OF_PRODUCTS = ("math", "activation_bytes", "matmul_input_bytes", "residual_bytes", "autocast", "cast_bytes",
               "cast_each", "exchange_bytes", "rescale_bytes", "wide_weight_gradient", "wide_layers",
               "scaled_share")  # fmt: skip
"""Fields of a recipe that decide how products and passes run; the others decide what is kept and sent, priced apart."""
GATHERED = 3
"""The ZeRO stage that gathers weights in every pass; those below it move as many bytes as plain data parallelism
(Rajbhandari et al. 2020, ZeRO, section 7)."""


@while_same(lambda: catalog.state("precisions"), 64)
def kind_of_recipe(name: str) -> str:
    """A recipe by what its products cost; ``name`` may end in marks of adapters."""
    recipe, *marks = name.split("+")
    try:
        known = catalog.load("precisions", recipe)
    except DistsimError:
        return name
    return "+".join([" ".join(str(getattr(known, field)) for field in OF_PRODUCTS), *marks])


def kind_of_stage(zero: str) -> str:
    """A ZeRO stage by what it moves, as the least one of its kind."""
    return str(GATHERED) if zero == str(GATHERED) else "0"


def compared(names: tuple[str, ...]) -> tuple[str, ...]:
    """A likeness's names as they are compared: as they are, but for the user's own runs and jobs, which all are of one
    source."""
    gpu, recipe, again, zero, *rest, source = names
    if not source.startswith(OWN):
        return names
    return (gpu, kind_of_recipe(recipe), again, kind_of_stage(zero), *rest, OWN)
