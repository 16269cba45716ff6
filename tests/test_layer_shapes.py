"""Layers of one stack with unlike heads, keys that others made, inputs of their own, experts beside an MLP."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from ledgers import counted, longer_costs_more, one_gpu, shared_and_whole
from recordings import PRECISION
from test_search import same_somewhere

import distsim
from distsim.engine.figures import Figures
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.flops import active_parameters, attended
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.engine.memory import memory_of
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.layers.ledger import Operation
from distsim.specs.job import Job
from distsim.specs.model import Model

ORACLES = Path(__file__).parent / "oracles"
# Counted on the instantiated (meta) modules of transformers 5.23; of several modalities the decoder alone.
COUNTS = json.loads((ORACLES / "layer_shapes.json").read_text())
# One step of transformers 5.23's modules on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says.
MEMORY = list(csv.DictReader((ORACLES / "torch_layer_shapes.csv").open()))
CONFIGS = json.loads((ORACLES / "torch_layer_shapes_configs.json").read_text())
PRESETS = [row["name"] for row in COUNTS if row["name"]]


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: f"{row['config']['architectures'][0]}-{row['parameters']}")
def test_counts(row: dict[str, Any]) -> None:
    counted(row, row["name"])


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row["case"])
def test_against_torch(row: dict[str, str]) -> None:
    """States to PyTorch's rounding, all that is kept to 0.06%, with adapters to 0.7%, peaks to 0.2 and 0.5%.

    Under recomputation Gemma 4 shares keys and inputs of layers, whose gradients pile up until the first of them; and
    Gemma 3n's layer holds a dozen tensors of the hidden width by the names of its variables while it runs again. What
    autocast keeps is told by the peak alone: the record takes some activations for cast weights of the same shape.
    """
    full, batch, cast, adapted = (
        row["recompute"] == "full", int(row["micro_batch"]), row["dtype_scheme"] == "fp32_amp", bool(row["lora"])
    )  # fmt: skip
    options: dict[str, Any] = {"lora_rank": 16, "lora_targets": row["lora"]} if adapted else {}
    setup = one_gpu(
        read_config(CONFIGS[row["model"]]).model, seq=int(row["seq"]), micro_batch=batch, global_batch=batch,
        recompute=row["recompute"], attention="eager" if row["attn_impl"] == "eager" else "flash",
        precision=PRECISION[row["dtype_scheme"]], **options,
    )  # fmt: skip
    stage = build_stages(setup)[0]
    saved, held = saved_of(setup, stage), states(setup, stage.parameters, Figures())
    for mine, theirs in ((held.parameters, "static_param"), (held.gradients, "bwd_end_grad"),
                         (held.optimizer, "static_optim")):  # fmt: skip
        assert mine == pytest.approx(int(row[theirs]), rel=1e-5)
    if not cast:
        kept = 0.004 if full else 0.007 if adapted else 6e-4
        assert saved.total == pytest.approx(int(row["saved_total"]), rel=kept)
    tensors = memory_of(setup).worst.counted("allocated")
    near = (0.045 if setup.model.streams else 0.0075) if full else 0.005 if adapted else 0.002
    assert tensors == pytest.approx(int(row["peak_total"]), rel=near)


EFFECTIVE = {"gemma-4-e2b": 2.3, "gemma-4-e4b": 4.5, "gemma-4-12b": 11.9, "gemma-4-31b": 30.7, "gemma-4-26b-a4b": 3.8}


@pytest.mark.parametrize(("name", "billions"), EFFECTIVE.items())
def test_parameters_of_a_token(name: str, billions: float) -> None:
    """What their authors call effective or active: tables that are looked up do not count, the output layer does."""
    assert active_parameters(one_gpu(name, seq=128)) / 1e9 == pytest.approx(billions, abs=0.15)


def test_attention_counts_with_the_width_of_its_heads() -> None:
    """Ten layers of 60 have heads twice as wide."""
    model = load_model("gemma-4-31b").spec
    assert attended(model, 4096, 4096) == (70, 4096)
    assert model.in_layer(5).head_dim == 2 * model.in_layer(0).head_dim == 512
    assert model.in_layer(0) is model


def _layer(setup: Setup, kind: str) -> dict[str, Operation]:
    block = next(block for block, _ in build_stages(setup)[0].layers if block.name == kind)
    return {operation.name: operation for operation in block.operations}


def test_borrowed_keys_have_no_projection_and_are_kept_once() -> None:
    """Layers of Gemma 4 E2B that read others' keys project queries alone; with one key head nothing is copied."""
    setup = one_gpu("gemma-4-e2b", seq=256)
    own, borrowed = _layer(setup, "dense"), _layer(setup, "dense+borrowed")
    tokens, width = 256, 512
    assert own["attention.qkv"].shape[1] == (8 + 2) * width
    assert borrowed["attention.qkv"].shape[1] == 8 * width
    assert "attention.key_norm" in own and "attention.value_norm" in own
    assert not {"attention.key_norm", "attention.value_norm"} & set(borrowed)
    kept = {tensor.name: tensor.elements for tensor in borrowed["attention.heads"].saved}
    assert kept["attention.query"] == tokens * 8 * width
    assert kept["attention.key"] == kept["attention.value"] == 0
    assert borrowed["mlp.up"].shape[1] == 2 * own["mlp.up"].shape[1]
    assert borrowed["attention.core"].bytes_read == own["attention.core"].bytes_read


def test_one_projection_for_keys_and_values() -> None:
    setup = one_gpu("gemma-4-31b", seq=256, precision="bf16", framework="megatron-core", tp=4, gpus=4)
    windowed, whole = _layer(setup, "dense+window"), _layer(setup, "dense")
    assert windowed["attention.qkv"].shape[1] == (32 + 2 * 16) / 4 * 256
    assert whole["attention.qkv"].shape[1] == (32 + 4) / 4 * 512


@pytest.mark.parametrize("name", ["gemma-4-e4b", "gemma-4-31b", "gemma-4-26b-a4b"])
def test_ranks_hold_the_whole_together(name: str) -> None:
    """What tensor parallel ranks share adds up; what each holds whole is counted by each."""
    found = {}
    for tp in (1, 2):
        setup = one_gpu(name, framework="megatron-core", precision="bf16", gpus=2, tp=tp, micro_batch=1, seq=1024)
        found[tp] = shared_and_whole(setup)
    assert found[2] == pytest.approx((found[1][0] / 2, found[1][1]))


@pytest.mark.parametrize("name", PRESETS)
def test_every_command_knows_it(name: str) -> None:
    """Memory, traffic and time of one job; a longer sequence costs more of each."""
    options = {"gpu": "b200-sxm", "gpus": 16, "framework": "megatron-core", "micro_batch": 1, "recompute": "full"}
    if load_model(name).spec.experts:
        options["ep"] = 8
    short = longer_costs_more(name, **options)
    assert any("heads of width 512" in note for note in short.notes) is (name.startswith("gemma-4"))


def test_the_second_table_counts_in_every_state() -> None:
    """262,144 rows of 35 times 256: in parameters, gradients and states of the one stage, and under ZeRO 3 shared."""
    table = 262_144 * 35 * 256
    whole, shared = (
        distsim.memory(model="gemma-4-e2b", gpu="h200-sxm", gpus=8, seq=512, framework="fsdp", zero=zero)
        .to_dict()["stages"][0]["categories"] for zero in (0, 3)
    )  # fmt: skip
    for part, each in (("parameters", 2), ("gradients", 2), ("optimizer", 8)):
        assert whole[part] > table * each
        assert shared[part] < whole[part] / 6
    without = load_model("gemma-4-e2b").spec.model_copy(update={"layer_inputs": None})
    assert load_model("gemma-4-e2b").parameters - load_model(without).parameters > table


def test_stages_pass_on_hidden_states_alone() -> None:
    for name, what in (("gemma-4-e2b", "keys and values that the last 20 layers"),):
        with pytest.raises(DistsimError, match=what):
            distsim.memory(model=name, gpu="h100-sxm", gpus=8, pp=2)
    inputs = read_config(CONFIGS["gemma4-inputs"]).model
    with pytest.raises(DistsimError, match="per-layer inputs that all layers read"):
        distsim.memory(model=inputs, gpu="h100-sxm", gpus=8, pp=2, seq=1024)
    assert distsim.memory(model="gemma-4-31b", gpu="h100-sxm", gpus=8, pp=2, tp=4, seq=1024).peak > 0
    with pytest.raises(DistsimError, match="neither a divisor nor a multiple of 16 and 4 key-value heads"):
        distsim.memory(model="gemma-4-31b", gpu="h100-sxm", gpus=3, tp=3, seq=1024)


@pytest.mark.parametrize("case", [("gemma-4-31b", 8, {}), ("gemma-4-26b-a4b", 8, {}),
                                  ("gemma-4-e4b", 4, {"lora_rank": 8})], ids=lambda case: case[0])  # fmt: skip
def test_arrays_of_layouts_give_the_numbers_of_one(case: tuple[str, int, dict[str, Any]]) -> None:
    model, gpus, more = case
    job = Job(model=model, gpu="h200-sxm", global_batch=gpus, seq=2048, framework="megatron-bridge", **more)
    same_somewhere(job, gpus, seed=3, most=3)


def test_adapters_follow_the_projections_there_are() -> None:
    """q, k and v where all are made, q and k where one makes both, q alone where keys are others'."""
    for name, kind, letters in (("gemma-4-31b", "dense+window", "qkv"), ("gemma-4-31b", "dense", "qk"),
                                ("gemma-4-e2b", "dense+borrowed", "q")):  # fmt: skip
        rows = _layer(one_gpu(name, seq=256, lora_rank=8, lora_targets="q,k,v"), kind)
        found = [row[-1] for row in rows if row.startswith("attention.qkv.lora_a_")]
        assert "".join(found) == letters


def test_files_of_both_ages_say_the_same() -> None:
    """Older files have keys for layers without a window, newer ones what each layer has otherwise."""
    newer = next(row["config"] for row in COUNTS if row["name"] == "gemma-4-31b")
    older = {key: value for key, value in newer.items() if key != "per_layer_config"}
    older |= {"global_head_dim": 512, "num_global_key_value_heads": 4}
    assert read_config(older).model == read_config(newer).model
    assert read_config({"model_type": "gemma4", "text_config": older, "vision_config": {}}).model.global_attention
    unified = next(row["config"] for row in COUNTS if row["name"] == "gemma-4-12b")
    published = {
        **unified,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 262_144,
        "num_experts": None,
    }
    reading = read_config({"model_type": "gemma4_unified", "text_config": published, "audio_config": {}})
    alone = read_config(unified).model.model_copy(update={"beside": ("audio_config",)})
    assert (reading.model, reading.unused, reading.beside) == (alone, (), ("audio_config",))
    plain = read_config({**older, "attention_k_eq_v": False}).model.global_attention
    assert plain is not None
    assert (plain.kv_heads, plain.keys_as_values) == (16, False)


def test_what_files_cannot_say() -> None:
    config = next(row["config"] for row in COUNTS if row["name"] == "gemma-4-31b")
    for wrong, problem in (
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"per_layer_config": {"5": {"num_attention_heads": 4}}}, "may differ, in head_dim and num_key_value_heads"),
        ({"per_layer_config": {"4": {"head_dim": 512}}}, "only layers without a window"),
        ({"per_layer_config": {"5": {"head_dim": 512}}}, "must have the same"),
        ({"per_layer_config": {"5": 512}}, "may differ"),
        ({"num_kv_shared_layers": 60}, "num_kv_shared_layers"),
        ({"num_kv_shared_layers": 58}, "layer of each kind to read keys from"),
        ({"num_key_value_heads": 12}, "kv_heads 12 does not divide"),
    ):
        with pytest.raises(DistsimError, match=problem):
            read_config({**config, **wrong})
    for kind in ("gemma4_assistant", "gemma4_unified_assistant"):
        with pytest.raises(DistsimError, match="not supported"):
            read_config({"model_type": kind, "text_config": config})
    narrow = next(row["config"] for row in COUNTS if row["name"] == "gemma-3n-e4b")
    for wrong, problem in (
        ({"activation_sparsity_pattern": [0.5] * 36}, "for each of the 35 layers"),
        ({"activation_sparsity_pattern": ["all"] * 35}, "a share from 0 to 1"),
        ({"intermediate_size": [8192] * 20 + [16384] * 15}, "differ in their MLPs"),
        ({"altup_num_inputs": None}, "altup_num_inputs"),
    ):
        with pytest.raises(DistsimError, match=problem):
            read_config({**narrow, **wrong})
    with pytest.raises(DistsimError, match="need one stack of plain attention"):
        Model.read({**load_model("deepseek-v3").spec.model_dump(), "layer_inputs": {"width": 8, "rows": 8}})


def test_the_last_layer_sees_everything() -> None:
    """Transformers makes it so, whatever the pattern says."""
    row = next(row for row in COUNTS if row["config"]["num_hidden_layers"] == 13)
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 4 + ["sliding_attention"]
    model = read_config({**row["config"], "layer_types": kinds}).model
    assert model.is_windowed(9) and not model.is_windowed(12)
    assert load_model(model).parameters == row["parameters"]


def test_cutoffs_are_where_the_file_has_them() -> None:
    """A share of zero is none; ten layers have one where the file names none, if there are more than ten."""
    config = {"model_type": "gemma3n_text", "num_hidden_layers": 12, "num_kv_shared_layers": 0}
    for pattern, layers in (([0.95, 0.0, 0.5], (0, 2)), (None, tuple(range(10))), (0.5, tuple(range(12)))):
        streams = read_config({**config, "activation_sparsity_pattern": pattern}).model.streams
        assert streams is not None
        assert streams.cutoff_layers == layers


def test_streams_are_what_full_recomputation_keeps() -> None:
    """Four streams of the hidden width per layer, and one under other names in models with one."""
    many, one = (one_gpu(name, seq=512, recompute="full") for name in ("gemma-3n-e4b", "gemma-4-e4b"))
    for setup, streams in ((many, 4), (one, 1)):
        block, _ = build_stages(setup)[0].layers[0]
        assert block.boundary is not None
        assert block.boundary.elements == streams * 512 * setup.model.hidden


def _sized(**fields: Any) -> Model:
    return Model.read({**load_model("llama-3.2-1b").spec.model_dump(), **fields})


@pytest.mark.parametrize("framework", ["megatron-core", "huggingface", "torchtitan"])
def test_sizes_by_layer_are_those_of_any_layer(framework: str) -> None:
    """Sizes stated layer by layer cost what they cost stated once; attention and MLP by themselves what they cost as
    mixers of a hybrid."""
    options: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 8, "seq": 4096, "framework": framework}
    same = {"heads": [32] * 16, "kv_heads": [8] * 16, "ffn": [8192] * 16}
    apart = {"kv_heads": [8, 0] * 2, "ffn": [0, 8192] * 2}
    for one, other in (
        (_sized(), _sized(sizes=same)),
        (_sized(layers=4, pattern="*-*-"), _sized(layers=4, sizes=apart)),
    ):
        mine, theirs = (distsim.step(model=model, **options) for model in (one, other))
        assert (mine.seconds, mine.peak_memory, mine.mfu) == (theirs.seconds, theirs.peak_memory, theirs.mfu)
        assert load_model(one).parameters == load_model(other).parameters


def test_each_layer_has_the_sizes_that_it_states() -> None:
    """OpenELM widens from layer to layer; Nemotron Super drops attention from 31 layers of 80."""
    setup = one_gpu("openelm-270m", seq=256)
    first, last = (
        _layer(setup, f"dense+{kind}") for kind in ("12-heads+3-kv_heads+768-ffn", "20-heads+5-kv_heads+5120-ffn")
    )
    assert (first["attention.qkv"].shape[1], last["attention.qkv"].shape[1]) == (18 * 64, 30 * 64)
    assert (first["mlp.up"].shape[1], last["mlp.up"].shape[1]) == (2 * 768, 2 * 5120)
    super_49b = one_gpu("llama-3.3-nemotron-super-49b", seq=256)
    assert not any(name.startswith("attention") for name in _layer(super_49b, "mlp+7168-ffn"))
    assert attended(super_49b.model, 4096, 4096) == (49, 4096)
    assert attended(setup.model, 2048, 2048)[0] == pytest.approx(sum(load_model("openelm-270m").spec.sizes.heads) / 20)


def test_models_sized_by_layer_hold_in_every_command() -> None:
    """Ranks hold the whole together, arrays of layouts give the numbers of one, and no rank has half a head."""
    name, found = "llama-3.3-nemotron-super-49b", {}
    for tp in (1, 2):
        options: dict[str, Any] = {"framework": "megatron-core", "precision": "bf16", "gpus": 2, "tp": tp}
        found[tp] = shared_and_whole(one_gpu(name, seq=1024, **options))
    assert found[2] == pytest.approx((found[1][0] / 2, found[1][1]))
    job = Job(model=name, gpu="h200-sxm", global_batch=8, seq=2048, framework="megatron-bridge")
    same_somewhere(job, 8, seed=3, most=3)
    for model in (name, "openelm-3b"):
        longer_costs_more(model, gpu="b200-sxm", gpus=16, framework="megatron-core", recompute="full")
    with pytest.raises(DistsimError, match="neither a divisor nor a multiple of 3, 4, 5 and 6 key-value heads"):
        distsim.memory(model="openelm-3b", gpu="h100-sxm", gpus=2, tp=2, seq=1024)


def test_sizes_that_cannot_be() -> None:
    for wrong, problem in (
        ({"sizes": {"ffn": [8192]}}, "for each of 16 layers"),
        ({"sizes": {"ffn": [0] * 16, "kv_heads": [0] * 16}}, "without attention and MLP"),
        ({"sizes": {"kv_heads": [5] * 16}}, "kv_heads 5 does not divide heads 32"),
        ({"sizes": {"ffn": [8192] * 16}, "window": 128}, "attention without windows"),
    ):
        with pytest.raises(DistsimError, match=problem):
            _sized(**wrong)


def _searched(heads_in_group: int | None, times: float | None, **more: Any) -> dict[str, Any]:
    """A block as Llama-Nemotron's files have them."""
    attention = {"n_heads_in_group": heads_in_group, "no_op": heads_in_group is None, "window_length": None}
    return {"attention": attention, "ffn": {"ffn_mult": times, "no_op": times is None, **more}}


def test_searched_blocks_are_read_one_by_one() -> None:
    """Widths are rounded up to 256; blocks that hold nothing are no layers."""
    blocks = [_searched(8, 5.25), _searched(None, 1.0), _searched(None, None), _searched(16, None)]
    config = {"model_type": "nemotron-nas", "architectures": ["DeciLMForCausalLM"], "hidden_size": 8192,
              "num_attention_heads": 64, "num_key_value_heads": None, "intermediate_size": None, "num_hidden_layers": 4,
              "block_configs": blocks}  # fmt: skip
    reading = read_config(config)
    sizes = reading.model.sizes
    assert sizes is not None and not reading.unused
    assert (sizes.kv_heads, sizes.ffn, reading.model.layers) == ((8, 0, 4), (28672, 5632, 0), 3)
    for blocks, problem in (
        ([_searched(8, 5.25)], "a list of 1, 1 of them"),
        ([_searched(None, None)] * 4, "a list of 4, 0 of them"),
        ([_searched(8, 1.0, replace_with_linear=True)] * 4, "no_op in place of either"),
        ([_searched(8, -1.0)] * 4, "ffn_mult is -1.0"),
        ([None] * 4, "no_op in place of either"),
    ):
        with pytest.raises(DistsimError, match=problem):
            read_config({**config, "block_configs": blocks})


def test_keys_shared_by_neighbours() -> None:
    """Every second layer of Hunyuan Large reads keys and values of the one before it, and projects queries alone."""
    setup = one_gpu("hunyuan-large", seq=256)
    own, borrowed = _layer(setup, "moe"), _layer(setup, "moe+borrowed")
    assert (own["attention.qkv"].shape[1], borrowed["attention.qkv"].shape[1]) == ((80 + 2 * 8) * 80, 80 * 80)
    kept = {tensor.name: tensor.elements for tensor in borrowed["attention.heads"].saved}
    assert kept["attention.key"] == kept["attention.value"] == 0
    apart = setup.model.model_copy(update={"shared_keys": None})
    key_norms = 32 * 80
    assert load_model(apart).parameters - load_model(setup.model).parameters == 32 * 2 * 6400 * 640 + key_norms
    with pytest.raises(DistsimError, match="keys and values that all layers but the first of each 2"):
        distsim.memory(model="hunyuan-large", gpu="h200-sxm", gpus=64, pp=2)
    for wrong in ({}, {"layers": 2, "every": 2}):
        with pytest.raises(DistsimError, match="either layers or every"):
            _sized(shared_keys=wrong)
