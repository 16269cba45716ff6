"""What Muon's orthogonalised updates cost a step."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import distsim
from distsim.engine.evidence import replay
from distsim.engine.footprint.orthogonalised import orthogonalised
from distsim.engine.footprint.states import states_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.orthogonal import orthogonal_work
from distsim.engine.kernels.weights import optimizer_seconds
from distsim.formulas.compute import newton_schulz_square_flops, newton_schulz_wide_flops
from distsim.interop.runs import Run
from distsim.specs.job import Job


def setup(**options: Any) -> Setup:
    given = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "seq": 2048, "optimizer": "muon", **options}
    return resolve(Job.read(given))


def test_operations_are_those_of_the_products() -> None:
    """Counted on arrays: 2 m n k for each product that the iteration does."""
    counted = 0

    def product(a: Any, b: Any) -> Any:
        nonlocal counted
        counted += 2 * a.shape[0] * a.shape[1] * b.shape[1]
        return a @ b

    x = numpy.ones((6, 10))
    for _ in range(5):
        gram = product(x, x.T)
        update = product(gram, gram)
        x = product(update, x)
        x /= numpy.linalg.norm(x)
    assert newton_schulz_wide_flops(6, 10, 5) + newton_schulz_square_flops(6, 5) == counted


def test_ranks_that_shard_states_take_matrices_in_turn() -> None:
    whole, shared = setup(zero=0), setup(zero=1)
    works = [orthogonal_work(one, build_stages(one)[0], Chip(one)) for one in (whole, shared)]
    assert works[0].seconds == pytest.approx(16 * works[1].seconds)
    assert works[0].kernels == 16 * works[1].kernels == (5 * 3 + 6) * 4 * 32


def test_stages_share_the_work_of_the_model() -> None:
    one = setup(zero=0)
    split = setup(zero=0, pp=4)
    seconds = [orthogonal_work(split, stage, Chip(split)).seconds for stage in build_stages(split)]
    assert sum(seconds) == pytest.approx(orthogonal_work(one, build_stages(one)[0], Chip(one)).seconds)


def test_ranks_that_hold_two_stages_step_both() -> None:
    """DualPipe's second copy of the model has an optimizer of its own."""
    layout = {"zero": 0, "pp": 4, "global_batch": 32}
    once, twice = setup(**layout), setup(**layout, schedule="dualpipe")
    single, double = (
        [orthogonal_work(one, stage, Chip(one)) for stage in build_stages(one)] for one in (once, twice)
    )  # fmt: skip
    for own, both, other in zip(single, double, reversed(single), strict=True):
        assert both.seconds == pytest.approx(own.seconds + other.seconds)
        assert both.kernels == own.kernels + other.kernels


def test_embeddings_and_output_layer_are_left_to_adam() -> None:
    names = {p.name for p, _ in build_stages(setup())[0].parameters if orthogonalised(setup(), p)}
    assert not any("embedding" in name or "norm" in name or name.startswith("head") for name in names)
    muon = setup()
    kept = {p.kind: [s.name for s in states_of(muon, p)] for p, _ in build_stages(muon)[0].parameters}
    assert kept["matrix"] == ["momentum_buffer"]
    assert "exp_avg_sq" in kept["embedding"]


def test_muon_moves_fewer_bytes_and_multiplies_more() -> None:
    adam, muon = setup(zero=0, optimizer="adamw"), setup(zero=0)
    traffic = [optimizer_seconds(one, build_stages(one)[0]) for one in (adam, muon)]
    assert traffic[1] < 0.9 * traffic[0]
    parts = [distsim.step(one.job).to_dict()["breakdown"]["optimizer"] for one in (adam, muon)]
    assert parts[1] > 3 * parts[0]


def test_many_small_matrices_wait_for_the_host() -> None:
    """A tiny model's step takes longer the more kernels are launched, not the more is multiplied."""
    options = {"gpu": "gb200", "gpus": 8, "framework": "megatron-lm", "seq": 1024, "zero": 0}
    times = {}
    for optimizer in ("adamw", "muon"):
        report = distsim.step(Job.read({**options, "model": "gpt2", "optimizer": optimizer}))
        times[optimizer] = report.to_dict()["breakdown"]["optimizer"]
    work = orthogonal_work(one := setup(**options, model="gpt2"), build_stages(one)[0], Chip(one))
    assert times["muon"] - times["adamw"] > 10 * work.seconds
    assert 0.05 < times["muon"] - times["adamw"] < 0.5


def test_experts_of_one_tensor_are_taken_together() -> None:
    """As many products, of which a small one does not fill the chip alone; launches for all experts of a layer."""
    options = {"model": "olmoe-1b-7b", "gpus": 1, "zero": 0}
    stacked, apart = (setup(**options, framework=name) for name in ("torchtitan", "megatron-core"))
    works = [orthogonal_work(one, build_stages(one)[0], Chip(one)) for one in (stacked, apart)]
    matrices = [
        [(p, times) for p, times in build_stages(one)[0].held() if orthogonalised(one, p)] for one in (stacked, apart)
    ]
    taken = [
        sum(times * (1 if together and p.group == "expert" else p.copies) for p, times in found)
        for together, found in zip((True, False), matrices, strict=True)
    ]
    assert [work.kernels / (5 * 3 + 6) for work in works] == pytest.approx(taken)
    assert taken[0] < 0.1 * taken[1] and works[0].seconds < works[1].seconds


def test_a_mixture_that_muon_trained_on_one_gpu() -> None:
    """36,821 tokens a second on one H100 (harims95/hobbylm-1b): with launches for each expert a step came out 4.4 s."""
    cells = {
        "id": "one", "source": "somebody", "model": "1B (own moe)", "family": "llama", "layers": "20",
        "hidden": "1024", "heads": "16", "kv_heads": "8", "ffn_hidden": "2816", "vocab": "50304", "n_experts": "64",
        "top_k": "8", "moe_ffn_hidden": "224", "shared_experts": "1", "seq_len": "1024", "gpu": "h100-sxm",
        "n_gpus": "1", "micro_batch": "8", "global_batch": "8", "precision": "amp-bf16", "recompute": "none",
        "attention": "sdpa", "optimizer": "muon", "compile": "1", "framework": "torch-ddp", "step_time_s": "0.2225",
        "notes": "dropless routing by torch._grouped_mm; torch.compile",
    }  # fmt: skip
    found = replay(Run(cells, 2))
    assert found.error is not None and abs(found.error) < 0.35
