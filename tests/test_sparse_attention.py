"""Attention to chosen keys by kernels that read no others (DeepSeek-V3.2, GLM-5)."""

from __future__ import annotations

from typing import Any

import pytest
from test_search import same_somewhere

import distsim
from distsim.engine.jobs.flops import flops_convention, least_flops, model_flops
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.flash import flash_seconds
from distsim.formulas.attention import attention_flops, chosen_keys
from distsim.layers.ledger import Operation, distinct_saved
from distsim.specs.job import Job

USUAL = {"gpu": "b200-sxm", "gpus": 64, "framework": "megatron-core", "ep": 8, "micro_batch": 1, "seq": 32768}


def _setup(**options: Any) -> Setup:
    return resolve(Job(**{"model": "deepseek-v3.2", **USUAL, **options}))


def _rows(setup: Setup) -> dict[str, Operation]:
    return {row.name: row for row in build_stages(setup)[0].layers[-1][0].operations}


@pytest.mark.parametrize(("seen", "chosen"), [(6, 3), (5, 5), (4, 9), (64, 16)])
def test_first_queries_have_fewer_keys_than_may_be_chosen(seen: int, chosen: int) -> None:
    """The mean over queries, counted; the formula is of long sequences, where a query's own token is nothing."""
    counted = sum(min(chosen, query + 0.5) for query in range(seen)) / seen
    assert chosen_keys(seen, chosen) == pytest.approx(counted, rel=0.04)


@pytest.mark.parametrize(
    ("model", "framework"),
    [("llama-3-8b", "megatron-core"), ("llama-3-8b", "huggingface"), ("deepseek-v3", "megatron-core"),
     ("deepseek-v3.2", "megatron-core"), ("deepseek-v3.2", "huggingface"), ("deepseek-v4-flash", "megatron-core"),
     ("qwen3-30b-a3b", "megatron-core")],
)  # fmt: skip
def test_products_of_attention_are_those_of_its_shape(model: str, framework: str) -> None:
    """A head of S tokens takes 4 S^2 d by one kernel; a row of scores alone half of that."""
    assert attention_flops(2048**2, 128, 128) == 4 * 2048**2 * 128
    more: dict[str, Any] = {"ep": None, "zero": 3 if framework == "huggingface" else None}
    rows = _rows(_setup(model=model, framework=framework, **more))
    found = [row for row in rows.values() if row.kind == "attention" and row.name != "attention.target.core"]
    assert found
    for row in found:
        batch, heads, queries, keys, width, values = row.shape
        alone = row.name.startswith("attention.index")
        assert row.flops_forward == pytest.approx(
            attention_flops(batch * heads * queries * keys, width, 0 if alone else values)
        )


def test_products_of_chosen_pairs() -> None:
    """Queries and keys are as wide as rank and rotated part together, values as the rank."""
    rows = _rows(_setup())
    pairs = 32768 * 128 * chosen_keys(32768, 2048)
    assert rows["attention.core"].flops_forward == pytest.approx(2 * pairs * (576 + 512))
    assert rows["attention.target.core"].flops_forward == pytest.approx(2 * pairs * 576)
    assert rows["attention.index.core"].flops_forward == pytest.approx(32768**2 * 64 * 128)
    dense = _rows(_setup(framework="torchtitan", ep=None))
    assert rows["attention.kv_up"].flops_forward == dense["attention.kv_up"].flops_forward
    assert rows["attention.kv_up"].parameters == dense["attention.kv_up"].parameters
    assert "attention.target.core" not in _rows(_setup(framework="torchtitan", ep=None))


def test_few_heads_are_padded_and_gather_as_many_keys() -> None:
    """8 heads of a tensor parallel rank cost what 16 do; keys are read from the cache whatever the number of heads."""
    rows = {tp: _rows(_setup(tp=tp, gpus=512))["attention.core"] for tp in (1, 8, 16)}
    assert rows[16].flops_forward == pytest.approx(rows[8].flops_forward)
    assert rows[1].flops_forward == pytest.approx(8 * rows[8].flops_forward)
    chip = Chip(_setup())
    whole, cut = (flash_seconds(chip, rows[tp])[0] for tp in (1, 8))
    gathered = 32768 * chosen_keys(32768, 2048) * 576 * 2
    assert cut > gathered / (2.5 * chip.bandwidth)
    assert whole < 8 * cut


def test_what_the_narrow_layer_keeps() -> None:
    """Queries before and after they are multiplied into the narrow layer, its output before and after; one key."""
    block = build_stages(_setup())[0].layers[-1][0]
    kept, tokens = distinct_saved(block.operations), 32768
    widths = {
        name: kept[f"attention.{name}"] / tokens / 2 for name in ("query", "query_absorbed", "output_latent", "key")
    }
    assert widths == {"query": 128 * 192, "query_absorbed": 128 * 576, "output_latent": 128 * 512, "key": 576}
    assert kept["attention.output"] == tokens * 128 * 128 * 2
    assert kept["attention.value"] == 0


# deepseek-ai/FlashMLA README: forward of sparse prefill reaches up to 640 TFLOP/s on H800, 1,450 on B200 (2,048 keys).
@pytest.mark.parametrize(("gpu", "most"), [("h800-sxm", 640e12), ("b200-sxm", 1450e12)])
def test_rates_of_published_kernels(gpu: str, most: float) -> None:
    tokens, flops = 4096, 2 * 4096 * 128 * 2048 * (576 + 512)
    row = Operation("attention.core", "attention", flops, 0, 0, 0, (tokens, 1, 128, 2048, 576, 512), causal=False)
    rate = flops / flash_seconds(Chip(_setup(gpu=gpu)), row)[0]
    assert 0.8 * most < rate <= most


def test_long_sequences_grow_less_than_with_dense_attention() -> None:
    grown = {}
    for framework in ("megatron-core", "torchtitan"):
        options = {"model": "deepseek-v3.2", "gpu": "b200-sxm", "gpus": 512, "pp": 8, "recompute": "full", "cp": 8,
                   "micro_batch": 1, "framework": framework, "zero": 0, "ep": 64}  # fmt: skip
        times = [distsim.step(seq=seq, **options).breakdown["compute"] for seq in (32768, 131072)]
        grown[framework] = times[1] / times[0]
    assert grown["megatron-core"] < 5 < 7 < grown["torchtitan"]


def test_where_no_such_kernel_runs_attention_is_dense() -> None:
    """On older chips, with composed attention, and in frameworks without them."""
    assert _setup().kernels.sparse_attention == "absorbed"
    for options in ({"gpu": "a100-sxm4-80gb"}, {"framework": "torchtitan"}, {"attention": "eager"}):
        setup = _setup(**options)
        assert "attention.query_absorbed" not in distinct_saved(build_stages(setup)[0].layers[-1][0].operations)
        assert any("counted as dense" in note for note in setup.notes)
        assert "dense attention" in flops_convention(setup)
    assert not any("keys" in note for note in _setup(model="deepseek-v3").notes)


def test_model_flops_are_of_chosen_keys() -> None:
    """Twice the sequence is twice the work, but for the indexer, which is no product with parameters."""
    short, long = (model_flops(_setup(seq=seq)) for seq in (32768, 131072))
    assert short == long
    assert "chosen keys" in flops_convention(_setup())
    assert least_flops(_setup()) < model_flops(_setup())


def test_arrays_of_layouts_give_the_numbers_of_one() -> None:
    job = Job(model="a.x-k2-light", gpu="h200-sxm", global_batch=8, seq=4096, framework="megatron-core")
    same_somewhere(job, 8, seed=7, most=3)
