"""Which layers have experts, where a measured run's count of parameters tells what its cells do not."""

from __future__ import annotations

from distsim.interop.runs.shapes import nominal
from distsim.interop.runs.table import Run
from distsim.layers.network import count_parameters
from distsim.specs.model import Model
from distsim.units import GIGA

CONTRADICTS = 0.05
"""How far a count of parameters is off what the cells make before it says something else: names round by less."""
FIRST_DENSE = (1, 2, 3)
"""Layers before the first with experts: 1 in DeepSeek V2 and Kimi K2, 3 in DeepSeek V3 and GLM-4.5 (their config.json,
first_k_dense_replace)."""


def as_counted(model: Model, run: Run) -> Model:
    """The model with experts in so many of its layers as make the row's parameters: in all of them unless these
    contradict it, else in every second (Llama 4 Maverick, GShard) or in all but the first."""
    told = run.positive("n_params_b")
    if told is None or model.experts is None or not _contradicts(model, told):
        return model
    every_second = tuple(range(0, model.layers, 2))
    kinds = [every_second, *(tuple(range(first)) for first in FIRST_DENSE if first < model.layers)]
    models = [model.model_copy(update={"experts": model.experts.model_copy(update={"dense_layers": kind})})
              for kind in kinds]  # fmt: skip
    best = min(models, key=lambda one: _apart(one, told))
    return best if _apart(best, told) <= nominal(run, told) else model


def told_by_count(model: Model, run: Run) -> str:
    """What the count of parameters was taken to say of the layers, or that it says something else than the cells."""
    told, text = run.positive("n_params_b"), run.text("n_params_b")
    if told is None:
        return ""
    if model.experts is not None and (dense := model.experts.dense_layers):
        first = dense == tuple(range(len(dense)))
        where = f"all layers but the first {len(dense)}" if first else "every second layer"
        return f"experts assumed in {where}, from n_params_b"
    if not _contradicts(model, told):
        return ""
    return f"n_params_b {text} contradicts the other cells, which give {count_parameters(model) / GIGA:.4g} billion"


def _contradicts(model: Model, told: float) -> bool:
    return _apart(model, told) > CONTRADICTS * told


def _apart(model: Model, told: float) -> float:
    """Billions of parameters between a model and what is told."""
    return abs(count_parameters(model) / GIGA - told)
