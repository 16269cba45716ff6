"""Large mixtures of experts of 2025 and 2026: heads of layers with a window, layers that are two, indexers, norms with
gates."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from ledgers import counted, longer_costs_more, shared_and_whole
from test_search import same_somewhere

import distsim
from distsim.engine.footprint.saved import saved_of
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.layers.ledger import distinct_saved
from distsim.layers.network import layer_kind
from distsim.layers.recompute import named_saved
from distsim.specs.job import Job
from distsim.specs.model import Model

ORACLES = Path(__file__).parent / "oracles"
# Counted on the instantiated (meta) modules of transformers 5.23, of later families 5.24; of several modalities the
# decoder alone. MiMo V2.5's, which transformers has not, are those of the checkpoints' tensors.
COUNTS = json.loads((ORACLES / "mixtures.json").read_text())
NAMED = {row["name"]: row["config"] for row in COUNTS if row["name"]}
# One step of transformers 5.23's modules (those of Hy4, GLM-5.3, Muse Spark of 5.24) on torch 2.13 fake tensors,
# recorded as tests/test_saved_tensors.py says. Loops over experts, whose shapes depend on values, are run with as many
# tokens for each. MiniMax-M3's indexer runs with gradients that end in it, so that what it kept is gone when it has
# chosen: what then lives is taken.
MEMORY = list(csv.DictReader((ORACLES / "torch_mixtures.csv").open()))
CONFIGS = json.loads((ORACLES / "torch_mixtures_configs.json").read_text())
HEAD_FP32 = {"hyv4/s2048/b1/eager/bf16/adamw": 6e-4, "hyv4/s2048/b1/eager/bf16/rc-full/adamw": 0.016}
"""An output layer of its own that stays in fp32, as that of Hy4 does, reads a copy that is not counted."""


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: f"{row['config']['model_type']}-{row['parameters']}")
def test_counts(row: dict[str, Any]) -> None:
    counted(row)


def _setup(model: Model, **options: Any) -> Setup:
    usual = {"gpu": "h200-sxm", "gpus": 1, "framework": "huggingface", "precision": "pure-bf16"}
    return resolve(Job(model=model, **{**usual, **options}))


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row["case"])
def test_against_torch(row: dict[str, str]) -> None:
    """Layers to 0.1%, but the first to 0.6%, which keeps the tables of cosines and sines for all; all that is kept
    to 0.5%."""
    batch = int(row["micro_batch"])
    setup = _setup(
        read_config(CONFIGS[row["model"]]).model, seq=int(row["seq"]), micro_batch=batch, global_batch=batch,
        recompute=row["recompute"], attention="eager" if row["attn_impl"] == "eager" else "flash",
    )  # fmt: skip
    stage, layers = build_stages(setup)[0], setup.model.layers
    rel = 0.005 if row["recompute"] == "full" else 0.0005
    rel = HEAD_FP32.get(row["case"], rel)
    assert saved_of(setup, stage).total == pytest.approx(int(row["saved_total"]), rel=rel)
    if row["recompute"] == "none":
        for column, layer in (("first", 0), ("mid", layers // 2), ("last", layers - 1)):
            block = next(block for block, _ in stage.layers if block.name == layer_kind(setup.model, layer))
            kept = sum(distinct_saved(block.operations).values())
            assert kept == pytest.approx(int(row[f"saved_layer_{column}"]), rel=0.006 if layer == 0 else 0.001)


def test_under_autocast_tokens_are_copied_as_their_norm_gives_them() -> None:
    """Llama 4's experts each have all tokens, times their router's weights, which is kept in fp32: what torch kept of a
    mixture's layer in 16-bit autocast, 999 tokens, beside casts of weights."""
    setup = _setup(read_config(CONFIGS["llama4-dense"]).model, seq=333, micro_batch=3, global_batch=3,
                   precision="amp-bf16")  # fmt: skip
    block = next(block for block, _ in build_stages(setup)[0].layers if block.name == "moe")
    kept = distinct_saved(block.operations)
    assert kept["mlp.experts.copies"] == 8 * 999 * 2048 * 4
    assert sum(kept.values()) == pytest.approx(688_804_044 - 8 * 3 * 3072 * 2048 * 2, rel=1e-5)


def test_files_of_the_hub_say_the_same_in_other_words() -> None:
    """Keys that the authors' own code reads, beside those of transformers."""
    mimo = {"model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 12}
    named = {"swa_num_key_value_heads": 8, "swa_num_attention_heads": 64, "add_swa_attention_sink_bias": True}
    kinds = {"hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0], "moe_layer_freq": [0] + [1] * 11}
    plain, stated = (read_config({**mimo, **more}).model for more in ({}, {**named, **kinds}))
    assert load_model(plain).parameters == load_model(stated).parameters
    assert [plain.is_windowed(layer) for layer in range(12)] == [False, *[True] * 4, False, *[True] * 5, False]
    assert [stated.is_windowed(layer) for layer in range(12)] == [plain.is_windowed(layer) for layer in range(12)]
    assert read_config({**mimo, "sliding_window_size": 128}).model.window == 129
    with pytest.raises(DistsimError, match="swa_head_dim is 64"):
        read_config({**mimo, "swa_head_dim": 64})

    dots = {"model_type": "dots3_note_text", "hidden_size": 5120, "num_hidden_layers": 46}
    assert load_model(read_config(dots).model).parameters == load_model(read_config(NAMED["dots3"]).model).parameters
    with pytest.raises(DistsimError, match="layers of one kind"):
        read_config({**NAMED["dots3"], "per_layer_config": {"2": {"kv_lora_rank": 512}}})

    flash = {"model_type": "longcat_flash", "hidden_size": 6144, "num_hidden_layers": 56}
    assert read_config(flash).model.layers == read_config(NAMED["longcat-flash"]).model.layers == 28


def test_layers_with_a_window_have_their_own_heads() -> None:
    model = read_config(NAMED["mimo-v2-flash"]).model
    assert model.head_counts == ((64, 4), (64, 8))
    assert (model.in_layer(0).kv_heads, model.in_layer(1).kv_heads) == (4, 8)
    assert (model.in_layer(0).attention_sinks, model.in_layer(1).attention_sinks) == (False, True)
    step = read_config(NAMED["step-3.7"]).model.model_copy(update={"window": 512, "window_pattern": (True, False)})
    wide = Model.read({**step.model_dump(), "windowed": {"heads": 96}})
    with pytest.raises(DistsimError, match="does not divide 64 and 96 attention heads"):
        distsim.memory(model=wide, gpu="h200-sxm", gpus=64, tp=64)
    with pytest.raises(DistsimError, match="kv_heads 8 does not divide heads 100"):
        Model.read({**step.model_dump(), "windowed": {"heads": 100}})
    with pytest.raises(DistsimError, match="windowed needs a window"):
        Model.read({**step.model_dump(), "window": None, "windowed": {"heads": 96}})


def test_experts_that_compute_nothing_are_stored_by_transformers_alone() -> None:
    model = read_config(NAMED["longcat-flash"]).model
    size, counts = 2 * 6144 * 2048 * 256 * 28, {}
    for framework in ("huggingface", "megatron-core"):
        setup = _setup(model, framework=framework, gpus=64, zero=1, ep=32 if framework == "megatron-core" else None)
        assert setup.model.experts is not None
        counts[framework] = load_model(setup.model).parameters
        assert any(f"{size:,} parameters of 256 experts that compute nothing" in note for note in setup.notes)
    assert counts["huggingface"] - counts["megatron-core"] == size
    assert counts["megatron-core"] == pytest.approx(561e9, rel=0.01)  # 560B, as its authors say
    assert model.experts is not None and model.experts.working_per_token == 8


def test_a_layer_that_is_two_keeps_what_two_layers_keep() -> None:
    """All names of the second half are its own; recomputation by name keeps its attention too."""
    setup = _setup(read_config(CONFIGS["longcat"]).model, framework="megatron-core", seq=2048, micro_batch=1)
    block = build_stages(setup)[0].layers[0][0]
    kept, policy = distinct_saved(block.operations), named_saved(block, ("context", "out"))
    assert kept["second.attention.query"] == kept["attention.query"]
    assert policy["second.attention.lse"] == policy["attention.lse"] > 0
    assert setup.model.attention_layers == 2 * setup.model.layers
    with pytest.raises(DistsimError, match="is a pair of layers"):
        _setup(setup.model, mtp=1)


@pytest.mark.parametrize("name", [*NAMED])
def test_every_command_knows_it(name: str) -> None:
    model = read_config(NAMED[name]).model
    options = {"gpu": "b200-sxm", "gpus": 512, "micro_batch": 1, "recompute": "full", "ep": 32, "tp": 2}
    longer_costs_more(model, **options)


@pytest.mark.parametrize("name", ["mimo-v2-flash", "longcat-flash", "dots3", "mistral-large-4"])
def test_ranks_hold_the_whole_together(name: str) -> None:
    """What tensor parallel ranks share adds up; what each holds whole is counted by each."""
    found = {}
    for tp in (1, 2):
        setup = _setup(
            read_config(NAMED[name]).model, framework="megatron-core", gpus=2, tp=tp, micro_batch=1, seq=4096
        )
        found[tp] = shared_and_whole(setup)
    assert found[2] == pytest.approx((found[1][0] / 2, found[1][1]))


@pytest.mark.parametrize("name", ["mimo", "longcat", "axk2", "dots3"])
def test_arrays_of_layouts_give_the_numbers_of_one(name: str) -> None:
    job = Job(model=read_config(CONFIGS[name]).model, gpu="h200-sxm", global_batch=8, seq=2048)
    same_somewhere(job, 8, seed=5, most=3)


def test_layers_without_an_indexer_attend_to_what_the_last_one_chose() -> None:
    config = {**CONFIGS["glm5"], "indexer_types": None}
    every = read_config({**config, "index_topk_freq": 3}).model
    assert every.latent_attention is not None
    assert [every.latent_attention.chooses(layer) for layer in range(6)] == [True, True, False, False, True, False]
    assert layer_kind(every, 2) != layer_kind(every, 4)
    with pytest.raises(DistsimError, match="one of full and shared"):
        read_config({**config, "indexer_types": ["full", "none"] * 3})
    with pytest.raises(DistsimError, match="share keys and values"):
        read_config({**CONFIGS["mistral4l"], "kv_source_layers": [0, 0, 2, 3, 4]})


def test_blocks_of_keys() -> None:
    """MiniMax-M3's own files name layers by 0 and 1; attention is counted dense, and said to be."""
    plain = {"model_type": "minimax_m3_vl_text", "hidden_size": 6144, "num_hidden_layers": 4}
    old = {"sparse_attention_freq": [0, 0, 1, 1], "sparse_num_index_heads": 4, "sparse_index_dim": 128,
           "sparse_block_size": 128, "sparse_topk_blocks": 16, "sparse_local_block": 1}  # fmt: skip
    stated = {**plain, "sparse_attention_config": old, "moe_layer_freq": [0, 1, 1, 1]}
    reading = read_config(stated)
    named = {"layer_types": ["full_attention"] * 2 + ["minimax_m3_sparse"] * 2}
    mlps = {"mlp_layer_types": ["dense"] + ["sparse"] * 3}
    assert load_model(reading.model).parameters == load_model(read_config({**plain, **named, **mlps}).model).parameters
    assert not reading.unused
    assert [layer_kind(reading.model, layer) for layer in range(4)] == ["dense", "moe", "moe+blocks", "moe+blocks"]
    notes = {seq: _setup(reading.model, framework="megatron-core", seq=seq).notes for seq in (2048, 4096)}
    assert any("16 blocks of 128 keys" in note for note in notes[4096])
    assert not any("blocks" in note for note in notes[2048])
    with pytest.raises(DistsimError, match="block_indexer needs"):
        Model.read({**reading.model.model_dump(), "window": 128})


def test_transformers_does_not_train_indexers() -> None:
    """They run without gradients there: no gradient, no states, nothing kept."""
    model = read_config(CONFIGS["dsv32"]).model
    for framework, held in (("huggingface", "frozen"), ("megatron-core", "trained")):
        stage = build_stages(_setup(model, framework=framework, seq=2048, micro_batch=1))[0]
        rows = [row for row in stage.layers[0][0].operations if row.name.startswith("attention.index.")]
        assert {one.held for row in rows for one in row.parameters} == {held}
        assert bool(sum(len(row.saved) for row in rows)) == (held == "trained")


def test_streams_go_from_stage_to_stage() -> None:
    """What stages send is as many times the hidden width as there are streams, and so is a layer's input."""
    model, sent, kept = read_config(NAMED["hy4"]).model, [], []
    for count in (1, 4):
        one = model.model_copy(update={"residual_streams": count})
        setup = _setup(one, framework="megatron-core", gpus=8, pp=2, ep=4, seq=2048, micro_batch=1)
        block = build_stages(setup)[0].layers[0][0]
        assert block.boundary is not None
        kept.append(block.boundary.size_bytes)
        rows = distsim.comm(setup.job).collectives
        sent.append(sum(row.bytes_per_call for row in rows if row.op == "send_recv"))
    assert sent[1] == 4 * sent[0] > 0
    assert kept[1] == 4 * kept[0] > 0
    with pytest.raises(DistsimError, match="several residual streams"):
        _setup(model, mtp=1)
    with pytest.raises(DistsimError, match="residual_streams need"):
        Model.read({**model.model_dump(), "norms_per_layer": 4})


STRANGE = {"zaya": "compressed and convolved", "hymba": "hybrid", "deepseek_v41_text": "tables of n-grams",
           "inkling2_loop_text": "run three times", "sdar_moe": "masked tokens"}  # fmt: skip


@pytest.mark.parametrize(("name", "words"), STRANGE.items())
def test_what_is_refused_says_why(name: str, words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        read_config({"model_type": name, "hidden_size": 64})


def test_experts_that_compute_every_token_get_each_once_per_rank() -> None:
    """Under transformers a rank of Llama 4 needs a token once, however many of its experts compute it."""
    options = {"gpus": 8, "ep": 8, "micro_batch": 1, "seq": 2048}
    setup = _setup("llama-4-scout", **options)
    operations = {one.name: one for one in build_stages(setup)[0].layers[0][0].operations}
    assert operations["mlp.experts.up"].shape[0] * operations["mlp.experts.up"].shape[3] == 16 * 2048
    assert operations["mlp.dispatch"].collectives[0].bytes_logical == 8 * 2048 * 5120 * 2


@pytest.mark.parametrize(("framework", "kept"), [("huggingface", 8), ("megatron-core", 2)])
def test_experts_beside_attention_have_a_norm_of_their_own(framework: str, kept: int) -> None:
    """Arctic's cost what a shared expert as wide as its MLP would cost, and a norm, of which bytes per element are
    kept: its output, and in elementary operations an fp32 copy and the normalised values."""
    arctic = load_model("snowflake-arctic").spec
    assert arctic.experts is not None
    same = arctic.experts.model_copy(update={"beside_mlp": False, "shared": 1, "shared_ffn": arctic.ffn})
    stream = 2048 * arctic.hidden
    found = []
    for model in (arctic, arctic.model_copy(update={"experts": same})):
        setup = _setup(model, seq=2048, framework=framework)
        rows = build_stages(setup)[0].layers[0][0].operations
        sent = sorted((one.op, one.bytes_logical) for row in rows for one in row.collectives)
        flops = sum(row.flops_forward for row in rows if row.kind == "matmul")
        found.append((flops, sent, sum(distinct_saved(rows).values())))
    assert found[0][:2] == found[1][:2]
    assert found[0][2] - found[1][2] == pytest.approx(kept * stream, rel=0.01)
    tp, whole = (shared_and_whole(_setup(arctic, gpus=2, tp=tp, framework="megatron-core")) for tp in (2, 1))
    assert tp == pytest.approx((whole[0] / 2, whole[1]))
    longer_costs_more(arctic, gpu="h200-sxm", gpus=64, ep=32, framework=framework, micro_batch=1, recompute="full")


def test_files_of_arctic() -> None:
    config = {"model_type": "arctic", "hidden_size": 7168, "intermediate_size": 4864, "num_hidden_layers": 35,
              "num_attention_heads": 56, "num_key_value_heads": 8, "num_local_experts": 128, "num_experts_per_tok": 2,
              "moe_layer_frequency": 1, "use_residual": True, "parallel_attn_mlp_res": True}  # fmt: skip
    reading = read_config(config)
    assert not reading.unused and reading.model.experts == load_model("snowflake-arctic").spec.experts
    assert load_model(reading.model).parameters == load_model("snowflake-arctic").parameters
    for wrong, problem in (({"use_residual": False}, "beside attention"), ({"moe_layer_frequency": 2}, "each layer")):
        with pytest.raises(DistsimError, match=problem):
            read_config({**config, **wrong})


def test_dense_layers_of_cohere_have_a_width_of_their_own() -> None:
    config = {"model_type": "cohere2_moe", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 100, "intermediate_size": 32, "num_experts": 8,
              "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}  # fmt: skip
    for width, dense in ((96, 96), (None, 32)):
        model = read_config({**config, "prefix_dense_intermediate_size": width}).model
        assert model.experts is not None
        assert (model.ffn, model.experts.ffn) == (dense, 32)
