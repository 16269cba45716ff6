"""Published activation formulas (Korthikanti et al. 2022, arXiv:2205.05198) from the ledger, and how shards add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest

from distsim import catalog
from distsim.arrays import maximum
from distsim.engine.figures import Figures
from distsim.engine.footprint.moments import moments_of
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.jobs.uncounted import memory_notes
from distsim.engine.memory import memory_of
from distsim.layers.ledger import Context, distinct_saved, saved_bytes
from distsim.layers.network import embedding_block, head_block, layer_block
from distsim.layers.recompute import op_level_bytes, op_level_saved
from distsim.specs.job import Job
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.precision import Precision

MEGATRON_2022 = Kernels(norm_statistics=False)
SHAPES = {"22b": (6144, 64), "gpt3-175b": (12288, 96), "530b": (20480, 128), "1t": (25600, 160)}
SEQ, BATCH, TP = 2048, 2, 8


def gpt(hidden: int, heads: int, **fields: Any) -> Model:
    """A GPT-3-like layer: gelu MLP of 4h, learned positions, dropout everywhere."""
    settings: dict[str, Any] = dict(  # noqa: C408
        name="gpt", family="gpt2", layers=4, hidden=hidden, heads=heads, kv_heads=heads, head_dim=hidden // heads,
        ffn=4 * hidden, vocab=51200, context=SEQ, gated=False, activation="gelu", norm="layernorm",
        positions="learned", position_rows=SEQ, qkv_bias=True, attention_output_bias=True, mlp_bias=True,
        tied_embeddings=True, attention_dropout=0.1, hidden_dropout=0.1, embedding_dropout=0.1,
    )  # fmt: skip
    return Model(**{**settings, **fields})


def half() -> Precision:
    """2-byte activations."""
    return Precision(
        name="half", parameter_bytes=2, gradient_bytes=2, master_bytes=4, state_bytes=4, activation_bytes=2
    )


def context(model: Model, kernels: Kernels = MEGATRON_2022, **layout: Any) -> Context:
    """A layer's context with eager attention unless asked otherwise."""
    settings = {"seq": SEQ, "micro_batch": BATCH, "attention": "eager", **layout}
    return Context(model, Layout(**settings), half(), kernels, vocab_padded=model.vocab)


def layer_bytes(ctx: Context) -> Any:
    """Saved bytes of one layer under the context's recomputation."""
    return saved_bytes(layer_block(ctx).operations, ctx.layout.selective, ctx.kernels)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("selective", [0, 1])
@pytest.mark.parametrize(
    ("tp", "sequence_parallel", "table"),
    [(1, 0, lambda t: (34, 5)), (TP, 0, lambda t: (10 + 24 / t, 5 / t)), (TP, 1, lambda t: (34 / t, 5 / t))],
)
def test_table_of_korthikanti(shape: str, selective: int, tp: int, sequence_parallel: int, table: Any) -> None:
    """All rows of table 2: none, tensor parallel, with sequence parallel, each also with selective recomputation."""
    hidden, heads = SHAPES[shape]
    constant, scores = table(tp)
    ctx = context(gpt(hidden, heads), tp=tp, sequence_parallel=sequence_parallel, selective=selective)
    expected = SEQ * BATCH * hidden * (constant + (0 if selective else scores * heads * SEQ / hidden))
    assert layer_bytes(ctx) == pytest.approx(expected, rel=1e-12)


def test_full_recompute_keeps_the_input() -> None:
    """2sbh per layer."""
    block = layer_block(context(gpt(*SHAPES["gpt3-175b"])))
    assert block.boundary is not None
    assert block.boundary.size_bytes == 2 * SEQ * BATCH * 12288


def test_outside_the_layers() -> None:
    """Section 4.3: the embedding's dropout mask is sbh/t; final norm and head keep 4sbh/t (1 + v/h)."""
    hidden = 12288
    ctx = context(gpt(hidden, 96), tp=TP, sequence_parallel=1)
    names = distinct_saved(embedding_block(ctx).operations)
    assert names["embedding.dropout_mask"] == SEQ * BATCH * hidden / TP
    ctx = ctx._replace(vocab_padded=51200)
    head = saved_bytes(head_block(ctx).operations)
    assert head == pytest.approx(4 * SEQ * BATCH * hidden / TP * (1 + 51200 / hidden), rel=1e-12)


PUBLISHED = ["llama-3-8b", "qwen3-8b", "gpt-neox-20b", "mixtral-8x7b", "olmo-2-7b", "opt-6.7b"]


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_sequence_and_tensor_shards_sum_to_the_whole(name: str, attention: str) -> None:
    """With sequence parallelism nothing is held twice, so the ranks' tensors add up to one rank's without it.

    Experts are spread, not sliced: ranks that slice an expert all hold the tokens sent to it.
    """
    model: Model = catalog.load("models", name)
    kernels = Kernels(norm_statistics=True)
    whole = layer_bytes(context(model, kernels, attention=attention))
    part = layer_bytes(context(model, kernels, attention=attention, tp=4, sequence_parallel=1, ep=4))
    assert 4 * part == pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize("name", PUBLISHED)
def test_selective_never_keeps_more(name: str) -> None:
    """Each way of recomputing keeps a subset by name."""
    model: Model = catalog.load("models", name)
    kernels = catalog.load("frameworks", "huggingface").kernels.model_copy(update={"selective": ("core_attention",)})
    block = layer_block(context(model, kernels))
    none, some = distinct_saved(block.operations), distinct_saved(block.operations, 1, kernels)
    assert set(some) <= set(none)
    assert all(some[tensor] <= none[tensor] for tensor in some)
    assert sum(some.values()) < sum(none.values())
    assert op_level_bytes(block, Kernels()) < sum(none.values())


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("framework", ["huggingface", ""])
def test_arrays_equal_numbers(name: str, attention: str, framework: str) -> None:
    """One call over arrays of layouts gives what a call per layout gives."""
    model: Model = catalog.load("models", name)
    kernels = catalog.load("frameworks", framework).kernels if framework else Kernels()
    layouts = [
        {"tp": tp, "cp": cp, "seq": s, "micro_batch": b, "sequence_parallel": int(tp > 1), "etp": tp, "selective": some}
        for tp in (1, 2, 4)
        for cp in (1, 2)
        for s, b in ((2048, 1), (8192, 2))
        for some in (0, 1)
    ]
    many = {key: numpy.array([layout[key] for layout in layouts]) for key in layouts[0]}
    for build in (layer_block, embedding_block, head_block):
        together = context(model, kernels, attention=attention, **many)
        got = numpy.broadcast_to(saved_bytes(build(together).operations, many["selective"], kernels), len(layouts))
        for index, layout in enumerate(layouts):
            alone = context(model, kernels, attention=attention, **layout)
            wanted = saved_bytes(build(alone).operations, layout["selective"], kernels)
            assert got[index] == pytest.approx(wanted, rel=1e-12), layout


@pytest.mark.parametrize("name", ["llama-3-8b", "opt-6.7b", "mixtral-8x7b"])
@pytest.mark.parametrize("framework", ["huggingface", "megatron-core"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_moments_of_many_layouts_at_once(name: str, framework: str, recompute: str) -> None:
    """The peak over arrays of layouts is each layout's own peak."""
    job = Job(model=name, gpu="h100-sxm", gpus=8, framework=framework, recompute=recompute, seq=2048)
    setup = resolve(job)
    layouts: list[dict[str, Any]] = [
        {"tp": tp, "sequence_parallel": int(tp > 1), "micro_batch": b, "micro_batches": m, "dp": 8 // tp}
        for tp in (1, 4)
        for b in (1, 4)
        for m in (1, 8)
    ]
    many = {key: numpy.array([layout[key] for layout in layouts]) for key in layouts[0]}
    got = _peak(replace(setup, layout=setup.layout.with_(**many)))
    for index, layout in enumerate(layouts):
        assert got[index] == pytest.approx(_peak(replace(setup, layout=setup.layout.with_(**layout))), rel=1e-12)


def _peak(setup: Setup) -> Any:
    (stage,) = build_stages(setup)
    held = states(setup, stage.parameters, Figures())
    totals = [moment.total for moment in moments_of(setup, stage, held, saved_of(setup, stage))]
    return maximum(*totals)


@pytest.mark.parametrize("framework", ["huggingface", "torch-compile", "megatron-core"])
def test_relu_keeps_its_output_alone(framework: str) -> None:
    """Its backward reads the sign of what it made, which the next product keeps anyway."""
    setup = resolve(Job(model="opt-6.7b", gpu="h200-sxm", gpus=1, framework=framework))
    kept = distinct_saved(build_stages(setup)[0].layers[0][0].operations)
    assert "mlp.product" in kept and "mlp.preactivation" not in kept


def _kept_by_op(model: str, **options: Any) -> dict[str, Any]:
    setup = resolve(Job(model=model, gpu="h100-sxm", gpus=8, framework="torchtitan", zero=3, recompute="selective",
                        **options))  # fmt: skip
    keeps = setup.framework.traffic.recompute_keeps
    return op_level_saved(build_stages(setup)[0].layers[-1][0], setup.kernels, exchanged=keeps)


def test_compiled_recomputation_leaves_out_what_only_additions_read() -> None:
    """The layer's last product and the adapter's beside it; not where a norm comes between. The sum behind attention
    is made again from its last product, but where no norm reads it (graphs that torch 2.13's partitioner cut)."""
    eager, compiled = (_kept_by_op("llama-3-8b", compile=one, lora_rank=8, lora_targets="q,v,o,gate,up,down")
                       for one in (False, True))  # fmt: skip
    assert compiled.items() < eager.items()
    assert all(".down" in name for name in eager.keys() - compiled.keys())
    products = {model: [name for name in _kept_by_op(model, compile=True) if "projection" in name]
                for model in ("gpt-oss-20b", "qwen2.5-7b", "llama-3-8b", "gpt-neox-20b", "phi-2")}  # fmt: skip
    assert [len(kept) for kept in products.values()] == [1, 1, 0, 0, 0]
    assert _kept_by_op("gemma-2-9b", compile=True) == _kept_by_op("gemma-2-9b", compile=False)


def test_recomputation_by_operations_keeps_what_some_exchanges_give() -> None:
    """torchtitan's list names all-to-alls and reduce-scatters. Tokens kept at their experts and back took 4.5 GiB more
    of DeepSeek's 16B at the tenth step (its pull request 1672: six experts, 26 layers, 4,096 tokens by its rate and
    clock), 4.9 by what they are. Of a layer of Llama 3's 8B on tp 8 torch 2.13 held 8,584 elements a token when forward
    had ended, 7,560 without sums."""
    tokens = {name: size for name, size in _kept_by_op("deepseek-v2-lite", ep=4, seq=4096).items() if "to_all" in name}
    assert sum(tokens.values()) * 26 / 2**30 == pytest.approx(4.875) and len(tokens) == 2
    assert not any("to_all" in name for name in _kept_by_op("deepseek-v2-lite", seq=4096))
    eager, compiled = (_kept_by_op("llama-3-8b", tp=8, seq=4096, compile=one) for one in (False, True))
    sums = {name: size for name, size in eager.items() if "scatter" in name}
    assert [sum(kept.values()) / 4096 / 2 for kept in (eager, sums)] == [8584, 8584 - 7560] and len(sums) == 2
    assert [name for name in compiled if "scatter" in name] == ["attention.projection.reduce_scatter"]


def test_gathered_keys_and_values_are_there_while_attention_runs() -> None:
    """Of all ranks, and in backward their gradients too; with keys of all heads a stage's peak is there."""
    job = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 32, "cp": 8, "pp": 4, "seq": 2**20, "recompute": "full"}
    modes = {mode: resolve(Job.read({**job, "cp_mode": mode})) for mode in ("ring", "all_gather")}
    rows = {
        mode: next(op for op in layer_block(one.context()).operations if op.name == "attention.core")
        for mode, one in modes.items()
    }
    whole = 2 * 32 * 128 * 2**20 * 2  # keys and values, 32 heads of 128, bf16
    forward, backward = (
        {mode: sum(tensor.size_bytes for tensor in getattr(row, f"transient_{phase}")) for mode, row in rows.items()}
        for phase in ("forward", "backward")
    )
    assert forward["all_gather"] - forward["ring"] == whole
    assert backward["all_gather"] - backward["ring"] == 2 * whole
    assert rows["all_gather"].saved == rows["ring"].saved  # gathered again, not kept
    peaks = {mode: memory_of(one).stages[1].peak for mode, one in modes.items()}
    assert 0 < peaks["all_gather"] - peaks["ring"] <= 2 * whole
    assert not memory_notes(modes["all_gather"].job, modes["all_gather"].layout, None)
