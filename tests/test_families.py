"""Networks that are no decoders of words alone: ViT, CLIP, Whisper, BART, DeBERTa, Mamba-1."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from ledgers import counted, one_gpu
from recordings import PRECISION, recorded_peak
from test_search import same_somewhere

import distsim
from distsim.engine.figures import Figures
from distsim.engine.footprint.moments import moments_of
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.flops import model_flops
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.layers.ledger import distinct_saved, flops_forward
from distsim.specs.job import Job
from distsim.specs.model import Model

ORACLES = Path(__file__).parent / "oracles"
# Counted on the instantiated (meta) modules of transformers 5.23; ``frozen`` are those without a gradient.
COUNTS = json.loads((ORACLES / "families.json").read_text())
# One step of transformers 5.23's modules on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says; bare
# encoders with the sum of their output as loss, BART without the mask that fake tensors alone make it pass.
MEMORY = list(csv.DictReader((ORACLES / "torch_families.csv").open()))
TOTAL, TIGHT, LOOSE = 0.01, 0.012, 0.025


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: f"{row['config']['architectures'][0]}-{row['parameters']}")
def test_counts(row: dict[str, Any]) -> None:
    reading = counted(row)
    held = _states(one_gpu(reading.model), 1)
    assert held.dense_parameters == row["parameters"] - row["frozen"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert-base-uncased-BertModel", 109_482_240), ("bert-large-uncased (masked LM)", 335_174_458),
        ("roberta-base-robertamodel", 124_645_632), ("xlm-roberta-large-xlmrobertamodel", 559_890_432),
        ("deberta-v3-base-debertav2model", 183_831_552), ("vit-base-patch16-224-1000-classes", 86_567_656),
        ("vit-base-ViTModel", 86_389_248), ("distilbert-base-model", 66_362_880), ("vit-h-14", 632_045_800),
        ("ViT-L/16", 304_326_632), ("google/vit-base-patch16-224", 86_567_656),
        ("clip-vit-l-14", 427_616_513), ("whisper-turbo", 808_878_080), ("mamba-790m", 793_204_224),
    ],
)  # fmt: skip
def test_names_with_a_class(name: str, parameters: int) -> None:
    assert load_model(name.replace(" (", "-").rstrip(")")).parameters == parameters


@pytest.mark.parametrize(
    "name", ["bert-base-gptmodel", "roberta-base-bertmodel", "llama-7b-model", "vit-base-formaskedlm"]
)
def test_classes_of_other_families(name: str) -> None:
    with pytest.raises(DistsimError, match="unknown model"):
        load_model(name)


def _states(setup: Setup, copies: int = 1) -> Any:
    return states(setup, list(build_stages(setup)[0].parameters) * copies, Figures())


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row["case"])
def test_against_torch(row: dict[str, str]) -> None:
    """States to PyTorch's rounding, layers to the byte but for Mamba's, and DeBERTa's under autocast: the recorder took
    two casts of its distances for casts of weights, whose shape they have."""
    spec, batch = load_model(row["model"]).spec, int(row["micro_batch"])
    if row["dec_seq"]:
        spec = spec.model_copy(update={"decoder_context": int(row["dec_seq"])})
    setup = one_gpu(
        spec, seq=spec.context if spec.text else int(row["seq"]), micro_batch=batch, global_batch=batch,
        recompute=row["recompute"], attention="eager" if row["attn_impl"] == "eager" else "flash",
        precision=PRECISION[row["dtype_scheme"]],
    )  # fmt: skip
    stage = build_stages(setup)[0]
    saved, held = saved_of(setup, stage), _states(setup)
    for mine, theirs in ((held.parameters, "static_param"), (held.optimizer, "static_optim")):
        assert mine == pytest.approx(int(row[theirs]), abs=1e-5 * int(row[theirs]) + 64_000)
    assert saved.total == pytest.approx(int(row["saved_total"]), rel=TOTAL)
    loose = spec.mamba is not None or (spec.disentangled is not None and row["dtype_scheme"] == "fp32_amp")
    if row["recompute"] == "none":
        kept = [sum(distinct_saved(block.operations).values()) for block, _ in stage.layers]
        wanted = [int(row[key]) for key in ("saved_layer_mid", "saved_declayer_mid") if row[key]]
        assert list(kept[: len(wanted)]) == pytest.approx(wanted, rel=TOTAL if loose else 0, abs=16)
    peak = recorded_peak(setup, stage, held, saved)
    assert peak == pytest.approx(int(row["peak_total"]), rel=LOOSE if loose else TIGHT)


FLOPS = ("vit-base-patch16-224", "whisper-small", "whisper-large-v3-turbo", "bart-large", "mamba-2.8b",
         "clip-vit-base-patch32")  # fmt: skip


@pytest.mark.parametrize("name", FLOPS)
def test_flops_follow_the_ledger(name: str) -> None:
    """Three times the products of a forward pass, but for norms, biases and tables."""
    setup = one_gpu(name, micro_batch=2)
    stage = build_stages(setup)[0]
    assert stage.embedding is not None and stage.head is not None
    rows = [*stage.embedding.operations, *stage.head.operations]
    rows += [one for block, times in stage.layers for one in block.operations * times]
    rows = [one for one in rows if one.kind != "elementwise"]  # a scan's work is in no convention
    assert model_flops(setup) * 2 * setup.layout.seq == pytest.approx(3 * flops_forward(rows), rel=4e-3)


def test_frozen_sines_are_held_and_nothing_else() -> None:
    """Whisper's encoder positions: two bytes each, no gradient, no states, no master copy."""
    held = _states(one_gpu("whisper-small", precision="bf16", framework="megatron-core"))
    frozen, others = 1500 * 768, 241_734_912 - 1500 * 768 + 51_968 * 768 - 51_865 * 768
    assert (held.parameters, held.gradients) == (2 * (frozen + others), 2 * others)
    assert held.optimizer == 12 * others


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("whisper-small", {"pp": 2}, "an encoder-decoder"), ("clip-vit-base", {"pp": 2}, "two stacks side by"),
        ("vit-base", {"cp": 2}, "images"), ("mamba-130m", {"cp": 2}, "scans"),
        ("deberta-v3-base", {"cp": 2}, "distances"),
        ("mamba-130m", {"tp": 2}, "cannot be split"),
        ("mamba-130m", {"lora_rank": 8, "lora_targets": "q,v"}, "no such module"),
        ("clip-vit-l-14", {"tp": 8, "sequence_parallel": False}, "text stack"),
        ("vit-base", {"mtp": 1}, "encoder"), ("t5-large", {"mtp": 1}, "decoder behind an encoder"),
        ("vit-base", {"seq": 1}, "no token for an image patch"),
        ("vit-base", {"tp": 2, "sequence_parallel": True}, "sequence parallelism"),
    ],
)  # fmt: skip
def test_what_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        one_gpu(name, gpus=8, framework="megatron-core", precision="bf16", **options)


def test_a_scan_that_is_composed_has_memory_but_no_time() -> None:
    options: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 1, "framework": "huggingface"}
    fused, composed = (
        distsim.memory(model="mamba-130m", attention=kind, **options).peak for kind in ("flash", "eager")
    )
    assert composed > 3 * fused
    assert distsim.step(model="mamba-130m", **options).seconds > 0
    with pytest.raises(DistsimError, match="token by token"):
        distsim.step(model="mamba-130m", attention="eager", **options)


def test_a_fused_scan_by_hand() -> None:
    """mamba_inner_fn keeps both projections' outputs, B and C, the scan's output and its state every 2,048 tokens."""
    setup = one_gpu("mamba-130m", seq=4096)
    (block, layers), = build_stages(setup)[0].layers  # fmt: skip
    kept = distinct_saved(block.operations)
    inner, state, rank, tokens = 1536, 16, 48, 4096
    wanted = tokens * 2 * (3 * inner + rank + 4 * state) + 2 * inner * 2 * state * 4 + inner * state * 4
    assert layers == 24
    assert sum(size for name, size in kept.items() if name.startswith("mamba.")) == wanted


SEARCHED = [(name, "megatron-core") for name in
            ("vit-large", "whisper-small", "mamba-370m", "clip-vit-base", "deberta-v3-base")]  # fmt: skip
SEARCHED += [("whisper-small", "megatron-2021"), ("deepseek-v4-flash", "prime-rl")]
"""Composed attention to an encoder; products of groups of heads, where operations are kept by their kind."""


@pytest.mark.parametrize(("name", "framework"), SEARCHED)
def test_arrays_of_layouts_give_the_numbers_of_one(name: str, framework: str) -> None:
    same_somewhere(Job(model=name, gpu="h100-sxm", global_batch=64, framework=framework), 8, seed=7)


def test_mistakes_in_a_model() -> None:
    for name, wrong, words in (
        ("vit-base", {"vocab": 10}, "vocab must be 0"), ("llama-7b", {"vocab": 0}, "vocab must be 0"),
        ("clip-vit-base", {"layers": 12}, "text needs patches"),
        ("bart-base", {"encoder_layers": 0}, "must be given together"),
        ("vit-base", {"patches": {"image": 8, "size": 16}}, "do not fit"), ("gpt2", {"frames": {"bins": 80}}, "need"),
    ):  # fmt: skip
        with pytest.raises(DistsimError, match=words):
            Model.read({**load_model(name).spec.model_dump(exclude_defaults=True), **wrong}, "mine.toml")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "vit", "hidden_size": 64, "patch_size": [16, 8]}, "square"),
        ({"model_type": "vit", "hidden_size": 64, "patch_size": 512}, "must fit"),
        ({"model_type": "vit", "hidden_size": 64, "architectures": ["ViTForMaskedImageModeling"]}, "architectures"),
        ({"model_type": "whisper", "d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 256}, "one shape"),
        ({"model_type": "bart", "d_model": 64, "tie_word_embeddings": False}, "separate vocabularies"),
        ({"model_type": "mamba", "hidden_size": 64, "time_step_rank": "some"}, "whole number"),
        (
            {"model_type": "clip", "vision_config": {"hidden_size": 64}, "text_config": {"hidden_act": "gelu"}},
            "hidden_act",
        ),
    ],
)  # fmt: skip
def test_configurations_that_are_not_covered(config: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        read_config(config)


TORCH_ADAM = {  # bytes of states, and of all at the optimizer's step, of Llama 3.2 1B in bf16 (recorded likewise)
    "adamw": (4_943_332_352, 9_886_590_976), "adamw-foreach": (4_943_257_600, 12_358_145_024),
    "adam-foreach": (4_943_257_600, 12_358_145_024), "adamw-forloop": (4_943_257_600, 10_937_189_376),
}  # fmt: skip


@pytest.mark.parametrize("optimizer", TORCH_ADAM)
def test_step_counters_lie_where_torch_keeps_them(optimizer: str) -> None:
    """On the GPU only where the update is fused: 512 bytes for each of 146 tensors."""
    setup = one_gpu("llama-3.2-1b", seq=2048, optimizer=optimizer)
    wanted, peak = TORCH_ADAM[optimizer]
    held, stage = _states(setup), build_stages(setup)[0]
    assert held.optimizer == wanted
    assert moments_of(setup, stage, held, saved_of(setup, stage))[-1].total == pytest.approx(peak, rel=1e-6)


def test_tokens_behind_an_encoder() -> None:
    short, long = (one_gpu("whisper-small", decoder_seq=tokens) for tokens in (100, 448))
    assert short.to_dict()["decoder_seq"] == 100 and "decoder_seq" not in one_gpu("gpt2").to_dict()
    assert saved_of(short, build_stages(short)[0]).total < saved_of(long, build_stages(long)[0]).total
    assert long.to_dict() == one_gpu("whisper-small").to_dict()
    assert any("448 positions" in note for note in one_gpu("whisper-small", decoder_seq=449).notes)
    with pytest.raises(DistsimError, match="no decoder behind an encoder"):
        one_gpu("gpt2", decoder_seq=100)


def test_images_per_second_are_told() -> None:
    from distsim.report.step import figures
    from distsim.report.style import Style

    report = distsim.step(model="vit-base", gpu="h100-sxm", gpus=8, micro_batch=64)
    told = next(line for line in figures(report, Style(100, 0, True)) if line.startswith("images"))
    assert f"{report.tokens_per_second / 197:,.0f} images/s" in told


def test_a_scan_is_bound_by_what_is_slower() -> None:
    """By arithmetic on an A100, by memory on an H100, whose vector units are 3.4 times as fast."""
    from distsim.engine.kernels.compute import Chip, operation_sums

    times = {}
    for gpu in ("a100-sxm4-80gb", "h100-sxm"):
        setup = one_gpu("mamba-2.8b", gpu=gpu, micro_batch=8)
        scan = next(one for one in build_stages(setup)[0].layers[0][0].operations if one.name == "mamba.scan")
        times[gpu] = operation_sums(setup, Chip(setup), scan)[0].memory
    assert times["a100-sxm4-80gb"] == pytest.approx(9 * 8 * 2048 * 5120 * 16 / 19.5e12, rel=1e-3)
    assert times["h100-sxm"] > 9 * 8 * 2048 * 5120 * 16 / 67e12


def test_quantised_weights_that_two_products_read_are_packed_once() -> None:
    """DeBERTa's distances go through the projections of queries and keys."""
    setup = one_gpu("deberta-v3-base", gpus=1, framework="huggingface", lora_rank=8, quantize="nf4")
    (block, _), *_ = build_stages(setup)[0].layers
    unpacked = [one.name for one in block.operations if one.kind == "unpack"]
    assert unpacked == [f"{name}.unpack" for name in ("attention.qkv", "attention.projection", "mlp.up", "mlp.down")]
    assert distsim.step(setup.job).seconds > 0
