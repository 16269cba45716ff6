"""Saved tensors, model states and peaks against PyTorch's own bookkeeping of Hugging Face models.

The oracle: transformers 5.23 models on torch 2.13 fake tensors, one step under ``MemTracker``; saved bytes are the
distinct storages that pass ``saved_tensors_hooks`` in a forward pass. Models named ``fam-…`` are small ones of further
families, whose configurations lie beside the table.
"""

from __future__ import annotations

import csv
import gzip
import json
import statistics
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from recordings import PRECISION, recorded_peak, recorded_stage

from distsim import catalog
from distsim.engine.figures import Figures
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs import resolve as resolving
from distsim.engine.jobs.models import LoadedModel
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.interop.huggingface.reader import read_config
from distsim.layers.ledger import distinct_saved
from distsim.layers.network import layer_block
from distsim.layers.recompute import op_level_bytes, op_level_saved
from distsim.specs.job import Job
from distsim.specs.model import Model

ORACLES = Path(__file__).parent / "oracles"
RECOMPUTE = {"none": "none", "full": "full", "sac": "selective"}
# Where the recorded configuration is the family's default instead of the published checkpoint's.
RECORDED: dict[str, dict[str, Any]] = {
    "gemma-3-1b": {"window": 4096},
    "phi-2": {"hidden_dropout": 0.0, "embedding_dropout": 0.0},
    "phi-3-mini": {"window": None},
    "phi-3.5-moe": {"window": None},
    "starcoder2-7b": {"window": None},
}
BLOCK = 512  # the tracker rounds every tensor up to the CUDA allocator's block


def rows() -> list[dict[str, str]]:
    """All recorded cases."""
    with gzip.open(ORACLES / "torch_memory.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


ROWS = rows()


@lru_cache
def model(name: str, layers: int) -> Model:
    """The model as it was recorded: often with fewer layers than its preset."""
    if name.startswith("fam-"):
        with open(ORACLES / "torch_memory_configs.json") as file:
            found = read_config(json.load(file)[name], name=name).model
    else:
        found = catalog.load("models", name)
    changes = dict(RECORDED.get(name, {}))
    if layers != found.layers:
        changes["layers"] = layers
        if found.experts and found.experts.dense_layers:
            dense = tuple(layer for layer in found.experts.dense_layers if layer < layers)
            changes["experts"] = found.experts.model_copy(update={"dense_layers": dense})
    return found.model_copy(update=changes)


@pytest.fixture
def setup_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], tuple[Setup, Stage]]:
    """Turns a row into a resolved job on one GPU and its only stage."""

    def build(row: dict[str, str]) -> tuple[Setup, Stage]:
        spec = model(row["model"], int(row["layers"]))
        monkeypatch.setattr(resolving, "load_model", lambda _: LoadedModel(spec))
        batch = int(row["micro_batch"])
        unfused = row["opt_impl"] == "foreach" and row["optimizer"] in ("adam", "adamw")
        job = Job(
            model=row["model"],
            gpu="h100-sxm",
            gpus=1,
            framework="huggingface",
            seq=int(row["seq"]),
            micro_batch=batch,
            global_batch=batch * int(row["grad_accum"]),
            attention="eager" if row["attn_impl"] == "eager" else "flash",
            precision=PRECISION[row["dtype_scheme"]],
            recompute=RECOMPUTE[row["recompute"]],
            optimizer="adamw-foreach" if unfused else row["optimizer"],
        )
        setup = resolve(job)
        return setup, recorded_stage(setup)

    return build


def groups() -> list[str]:
    """Dtype scheme, attention and recomputation that occur together."""
    return sorted({f"{row['dtype_scheme']} {row['attn_impl']} {row['recompute']}" for row in ROWS})


def of_group(group: str) -> list[dict[str, str]]:
    """The rows of one group."""
    return [row for row in ROWS if f"{row['dtype_scheme']} {row['attn_impl']} {row['recompute']}" == group]


@pytest.mark.parametrize("group", [group for group in groups() if not group.endswith("sac")])
def test_saved_bytes(group: str, setup_of: Callable[[dict[str, str]], tuple[Setup, Stage]]) -> None:
    """A middle layer and the whole network keep what autograd keeps: exact in the median, within 3 % at worst."""
    layer, total = [], []
    for row in of_group(group):
        setup, stage = setup_of(row)
        saved = saved_of(setup, stage)
        total.append((abs(saved.total / int(row["saved_total"]) - 1), row["case"]))
        if len(stage.layers) == 1:
            layer.append((abs(saved.per_layer / int(row["saved_layer_mid"]) - 1), row["case"]))
    assert max(total)[0] < 0.03, max(total)
    assert statistics.median(error for error, _ in total) < 1e-4
    assert max(layer)[0] < 0.03, max(layer)
    assert statistics.median(error for error, _ in layer) < 1e-4


@pytest.mark.parametrize("group", groups())
def test_peak(group: str, setup_of: Callable[[dict[str, str]], tuple[Setup, Stage]]) -> None:
    """The highest of the moments is the tracker's peak."""
    errors = []
    for row in of_group(group):
        setup, stage = setup_of(row)
        held = states(setup, stage.parameters, Figures())
        peak = recorded_peak(setup, stage, held, saved_of(setup, stage))
        errors.append((abs(peak / int(row["peak_total"]) - 1), row["case"]))
    assert max(errors)[0] < 0.03, max(errors)
    assert statistics.median(error for error, _ in errors) < 0.005


def test_model_states(setup_of: Callable[[dict[str, str]], tuple[Setup, Stage]]) -> None:
    """Parameters, gradients and optimizer states, up to the tracker's rounding of each tensor."""
    for row in ROWS:
        setup, stage = setup_of(row)
        if row["recompute"] != "none" or "master" in row["dtype_scheme"] or row["opt_impl"] == "forloop":
            continue
        held = states(setup, stage.parameters, Figures())
        tensors = sum(parameter.copies * times for parameter, times in stage.parameters)
        assert abs(held.parameters - int(row["static_param"])) <= BLOCK * tensors, row["case"]
        assert abs(held.gradients - int(row["bwd_end_grad"])) <= BLOCK * tensors, row["case"]
        assert abs(held.optimizer - int(row["static_optim"])) <= 2 * BLOCK * tensors, row["case"]


with open(ORACLES / "torch_saved.csv") as opened:
    TENSORS = list(csv.DictReader(opened))


@pytest.mark.parametrize("case", sorted({row["case"] for row in TENSORS}))
def test_each_tensor(case: str, setup_of: Callable[[dict[str, str]], tuple[Setup, Stage]]) -> None:
    """The recorded storages of one layer, by size: nothing kept that the ledger lacks, and the other way round."""
    (row,) = [row for row in ROWS if row["case"] == case]
    setup, _ = setup_of(row)
    block = layer_block(setup.context())
    wanted = [int(one["storage_bytes"]) for one in TENSORS if one["case"] == case and one["where"] == "layer"]
    ours = distinct_saved(block.operations)
    large = 1e6
    assert sum(ours.values()) == pytest.approx(sum(wanted), rel=1e-4)
    assert max(ours.values()) >= max(wanted)
    assert sum(size for size in ours.values() if size > large) == pytest.approx(
        sum(size for size in wanted if size > large), rel=1e-3
    )


def test_a_mask_for_a_sliding_window() -> None:
    """A window shorter than the sequence is a dense mask per layer: the memory-efficient kernel, expanded keys."""
    # recorded: 4-layer mistral-7b-v0.1 and phi-3-mini with a window of 1024 tokens at 2048 tokens, bf16
    for name, layers, recorded in (("mistral-7b-v0.1", 4, 444874768), ("phi-3-mini", 4, 319045648)):
        spec = model(name, layers).model_copy(update={"window": 1024})
        block = layer_block(_context(spec))
        assert sum(distinct_saved(block.operations).values()) == pytest.approx(recorded, abs=16)


def test_a_sequence_as_long_as_the_window_has_a_mask() -> None:
    """Transformers leaves the mask out only where the sequence is shorter."""
    # recorded: mistral-7b-v0.1 (window 4,096) at 4,096 tokens, bf16
    block = layer_block(_context(model("mistral-7b-v0.1", 32), 4096))
    assert sum(distinct_saved(block.operations).values()) == pytest.approx(906_526_736, abs=16)


def _context(spec: Model, seq: int = 2048) -> Any:
    from distsim.engine.jobs.profile import kernels_for
    from distsim.layers.ledger import Context
    from distsim.specs.layout import Layout

    kernels = kernels_for(catalog.load("frameworks", "huggingface"), spec)
    return Context(spec, Layout(seq=seq), catalog.load("precisions", "pure-bf16"), kernels, vocab_padded=spec.vocab)


@pytest.mark.parametrize(
    ("case", "megabytes"),
    [("llama-2-7b/s2048/b1/sdpa/bf16/rc-sac/adamw", 129.2375), ("qwen2.5-7b/s4096/b1/sdpa/bf16/rc-sac/adamw", 281.4783),
     ("gpt2-xl/s1024/b1/sdpa/bf16/rc-sac/adamw", 36.1472)],
)  # fmt: skip
def test_what_selective_recomputation_by_operations_keeps(
    case: str, megabytes: float, setup_of: Callable[[dict[str, str]], tuple[Setup, Stage]]
) -> None:
    """A layer's part of what lives when forward has ended, as torch 2.13 has it: every second product without a bias,
    and each with one."""
    setup, stage = setup_of(next(row for row in ROWS if row["case"] == case))
    kept = op_level_bytes(stage.layers[0][0], setup.kernels)
    assert kept / 1e6 == pytest.approx(megabytes, abs=2e-3)


def test_grouped_products_of_experts_are_computed_again() -> None:
    """torchtitan's policy names mm and addmm, not grouped_mm: a layer of experts keeps little more than its router."""
    setup = resolve(
        Job(model="gpt-oss-20b", gpu="gb300", gpus=64, framework="torchtitan", seq=8192, recompute="selective")
    )
    kept = op_level_saved(build_stages(setup)[0].layers[0][0], setup.kernels)
    assert not any(name.startswith("mlp.experts") for name in kept)
