"""Layers with a recurrent mixer or a convolution in attention's place, gates on attention, indexers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from ledgers import counted, longer_costs_more, one_gpu, shared_and_whole
from test_search import same_somewhere

import distsim
from distsim.cli.app import run
from distsim.engine.figures import Figures
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.interop.huggingface.recurrent import shortest
from distsim.layers.delta import SCAN_READS
from distsim.layers.ledger import distinct_saved
from distsim.layers.network import layer_kind
from distsim.specs.job import Job
from distsim.specs.model import Model

ORACLES = Path(__file__).parent / "oracles"
# Counted on the instantiated (meta) modules of transformers 5.23, of Lara's 5.24; of several modalities the decoder
# alone.
COUNTS = json.loads((ORACLES / "recurrent.json").read_text())
# One step of transformers 5.23's modules on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says. Of
# the delta rule and its convolution, kernels that fake tensors cannot run, a stand-in saves what the functions of
# flash-linear-attention and causal-conv1d pass to save_for_backward.
MEMORY = list(csv.DictReader((ORACLES / "torch_recurrent.csv").open()))
CONFIGS = json.loads((ORACLES / "torch_recurrent_configs.json").read_text())
PRESETS = [row["name"] for row in COUNTS if row["name"]]


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: f"{row['config']['architectures'][0]}-{row['parameters']}")
def test_counts(row: dict[str, Any]) -> None:
    counted(row, row["name"])


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row["case"])
def test_against_torch(row: dict[str, str]) -> None:
    """States to PyTorch's rounding, layers to 0.03%, all that is kept to 0.15%."""
    batch = int(row["micro_batch"])
    setup = one_gpu(
        read_config(CONFIGS[row["model"]]).model, seq=int(row["seq"]), micro_batch=batch, global_batch=batch,
        recompute=row["recompute"], attention="eager" if row["attn_impl"] == "eager" else "flash",
    )  # fmt: skip
    stage = build_stages(setup)[0]
    saved, held = saved_of(setup, stage), states(setup, stage.parameters, Figures())
    for mine, theirs in ((held.parameters, "static_param"), (held.optimizer, "static_optim")):
        assert mine == pytest.approx(int(row[theirs]), rel=1e-5)
    assert saved.total == pytest.approx(int(row["saved_total"]), rel=0.0015)
    if row["recompute"] == "none":
        kind = layer_kind(setup.model, setup.model.layers // 2)
        middle = next(block for block, _ in stage.layers if block.name == kind)
        assert sum(distinct_saved(middle.operations).values()) == pytest.approx(int(row["saved_layer_mid"]), rel=3e-4)


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "kimi-linear-48b-a3b", "lfm2-1.2b", "deepseek-v3.2"])
def test_ranks_hold_the_whole_together(name: str) -> None:
    """What tensor parallel ranks share adds up; what each holds whole is counted by each."""
    found = {}
    for tp in (1, 2):
        setup = one_gpu(name, framework="megatron-core", precision="bf16", gpus=2, tp=tp, micro_batch=1)
        found[tp] = shared_and_whole(setup)
    assert found[2] == pytest.approx((found[1][0] / 2, found[1][1]), rel=1e-5)  # tp pads the vocabulary


@pytest.mark.parametrize("name", PRESETS)
def test_every_command_knows_it(name: str) -> None:
    """Memory, traffic and time of one job; a longer sequence costs more of each."""
    options = {"gpu": "b200-sxm", "gpus": 64, "framework": "megatron-core", "micro_batch": 1, "recompute": "full"}
    model = load_model(name).spec
    if model.experts:
        options["ep"] = min(8, model.experts.count)
    if model.encoder_layers or (model.mamba and model.mamba.step_rank):
        options["framework"] = "fsdp"
        options.pop("ep", None)
        options["zero"] = 3
    longer_costs_more(name, **options)


@pytest.mark.parametrize(("framework", "copied"), [("megatron-bridge", True), ("huggingface", False)])
def test_megatron_copies_queries_and_keys_of_delta_rules(framework: str, copied: bool) -> None:
    """To all heads of values, behind their norm, whose output is kept as well; other kernels share them."""
    usual = {"gpu": "h200-sxm", "gpus": 8, "framework": framework, "seq": 4096, "micro_batch": 1}
    kept = {}
    for model in ("qwen3-next-80b-a3b", "kimi-linear-48b-a3b"):
        setup = resolve(Job(model=model, **usual, ep=8 if copied else None, zero=None if copied else 3))
        rows = (row for block, _ in build_stages(setup)[0].layers for row in block.operations)
        scan = next(row for row in rows if row.name == "delta.scan")
        sizes = {one.name: one.size_bytes for one in scan.saved}
        kept[model] = sizes.get("delta.query_key_copies")
        if kept[model]:  # which the kernels read instead of what they are copies of
            assert scan.output is not None
            read = scan.bytes_read - (scan.bytes_written - scan.output.size_bytes)
            assert read == SCAN_READS * (kept[model] + sizes["delta.value"])
    assert kept == {"qwen3-next-80b-a3b": 2 * 4096 * 32 * 128 * 2 if copied else None, "kimi-linear-48b-a3b": None}


def test_linear_layers_need_no_keys() -> None:
    """Where three layers in four scan, twice the sequence costs less than where all attend."""
    config = {**CONFIGS["qwen35"], "num_hidden_layers": 8}
    scans = read_config({**config, "layer_types": None, "full_attention_interval": 4}).model
    attends = read_config({**config, "layer_types": ["full_attention"] * 8}).model

    def growth(model: Model) -> float:
        times = [distsim.step(model=model, gpu="h100-sxm", gpus=1, seq=seq, micro_batch=1, optimizer="sgd").seconds
                 for seq in (8192, 65536)]  # fmt: skip
        return times[1] / times[0]

    assert scans.attention_layers == 2
    assert attends.attention_layers == 8
    assert growth(scans) < 0.7 * growth(attends)


@pytest.mark.parametrize("case", [("qwen3-next-80b-a3b", 8, {}), ("granite-4.0-h-small", 16, {}),
                                  ("lfm2-8b-a1b", 8, {"lora_rank": 8})], ids=lambda case: case[0])  # fmt: skip
def test_arrays_of_layouts_give_the_numbers_of_one(case: tuple[str, int, dict[str, Any]]) -> None:
    model, gpus, more = case
    job = Job(model=model, gpu="h200-sxm", global_batch=gpus, seq=2048, framework="megatron-bridge", **more)
    same_somewhere(job, gpus, seed=3, most=3)


def test_patterns() -> None:
    assert shortest((True, True, False) * 4) == (True, True, False)
    assert shortest((True, False, True)) == (True, False)
    assert shortest((False, True, True)) == (False, True, True)
    attending = {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27]}
    mixers = {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}
    kimi = {"model_type": "kimi_linear", "linear_attn_config": attending | mixers}
    shape = {"hidden_size": 2304, "num_hidden_layers": 27}
    model = read_config({**kimi, **shape}).model
    assert [layer for layer in range(27) if not model.is_recurrent(layer)] == [3, 7, 11, 15, 19, 23, 26]
    full = attending | mixers | {"use_full_rank_gate": True}
    gated = read_config({**kimi, **shape, "linear_attn_config": full, "mla_use_output_gate": True}).model
    assert gated.delta is not None
    assert gated.delta.gate_rank is None
    assert gated.attention_gate


def test_what_these_cannot_be() -> None:
    plain = load_model("qwen3-next-80b-a3b").spec.model_dump()
    with pytest.raises(DistsimError, match="recurrent names layers"):
        Model.read({**plain, "delta": None})
    with pytest.raises(DistsimError, match="recurrent names layers"):
        Model.read({**plain, "convolution": {"taps": 3}})
    with pytest.raises(DistsimError, match="key heads"):
        distsim.memory(model="qwen3-next-80b-a3b", gpu="h100-sxm", gpus=32, tp=32)
    with pytest.raises(DistsimError, match="kinds: "):
        read_config({**CONFIGS["qwen35"], "layer_types": ["full_attention", "other"] * 2})
    with pytest.raises(DistsimError, match="do not divide"):
        read_config({**CONFIGS["qwen35"], "linear_num_value_heads": 24})
    with pytest.raises(DistsimError, match="decoder"):
        read_config({"model_type": "bart", "architectures": ["BartForCausalLM"], "d_model": 64, "encoder_layers": 2})


def test_other_modalities_are_said_to_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(next(row["config"] for row in COUNTS if "vision_config" in row["config"])))
    from distsim.interop.models import reading_notes

    assert any("only the text decoder is read, without vision_config" in note for note in reading_notes(str(file)))


@pytest.mark.parametrize(("seq", "sample", "dense"), [(4096, None, True), (2048, None, False), (4096, 512, False)])
def test_attention_that_sees_more_than_its_indexer_chooses_is_said_to_be_dense(
    seq: int, sample: int | None, dense: bool
) -> None:
    options = {"gpus": 512, "ep": 32, "pp": 8, "micro_batch": 1, "seq": seq, "sample_tokens": sample}
    report = distsim.step(model="deepseek-v3.2", gpu="b200-sxm", framework="torchtitan", **options)
    assert any("2,048 keys that its indexer selects" in note for note in report.notes) is dense


def test_indexers_score_and_choose_inside_packed_samples() -> None:
    """Four samples of 1,024 tokens cost what four sequences of that length do, which have no 2,048 keys to choose."""
    options = {"framework": "torchtitan", "precision": "bf16", "gpus": 8}
    packed = one_gpu("deepseek-v3.2", seq=4096, sample_tokens=1024, micro_batch=1, **options)
    apart = one_gpu("deepseek-v3.2", seq=1024, micro_batch=4, **options)
    scores, alone = (
        next(one for one in build_stages(setup)[0].layers[-1][0].operations if one.name == "attention.index.scores")
        for setup in (packed, apart)
    )
    assert scores.shape == alone.shape and scores.flops_forward == alone.flops_forward
    chosen = next(tensor for tensor in scores.saved if tensor.name == "attention.index.chosen")
    assert chosen.elements == 4096 * 1024


def test_explanations_show_the_layers_that_are_most(capsys: pytest.CaptureFixture[str]) -> None:
    """Three layers in four of Qwen3-Next; of DeepSeek-V3 those with experts."""
    for model, kind in (("qwen3-next-80b-a3b", "moe+delta"), ("deepseek-v3", "moe")):
        options = [model, "--gpus", "64", "--ep", "8", "--seq", "1024", "--explain"]
        assert run(["step", *options]) in (0, 1)
        assert f"Kernels of a {kind} layer" in capsys.readouterr().out
        assert run(["memory", *options]) in (0, 1)
        assert f"Kept for backward by a {kind} layer" in capsys.readouterr().out
