"""Encoders: exact counts by class, what they keep for backward, what attention to all tokens costs, every command."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledgers import one_gpu
from recordings import PRECISION, recorded_stage

from distsim import catalog
from distsim.engine.figures import Figures
from distsim.engine.footprint.moments import moments_of
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.flops import model_flops
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.compute import Chip, operation_sums
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.layers.network import layer_block
from distsim.specs.model import Model

# Counted on the instantiated (meta) modules of transformers 5.23, whose classes and changed keys the table names.
ROWS = json.loads((Path(__file__).parent / "oracles" / "encoders.json").read_text())
# One step of masked language models on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says; all but
# BERT with fewer layers.
MEMORY = list(csv.DictReader((Path(__file__).parent / "oracles" / "torch_encoders.csv").open()))
EXACT = ("bert-large", "roberta-base", "megatron-bert-336m")
PRESETS = {
    "bert-base": 110_106_428, "bert-large": 336_226_108, "roberta-base": 124_697_433, "roberta-large": 355_412_057,
    "xlm-roberta-base": 278_295_186, "xlm-roberta-large": 560_142_482, "distilbert-base": 66_985_530,
    "modernbert-base": 149_655_232, "modernbert-large": 395_881_664, "esm2-8m": 7_512_474, "esm2-35m": 33_501_394,
    "esm2-150m": 148_140_154, "esm2-650m": 651_043_254, "esm2-3b": 2_839_005_634, "esm2-15b": 15_129_100_194,
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['config']['architectures'][0]}-{row['parameters']}")
def test_count_by_class(row: dict[str, Any]) -> None:
    """The class under ``architectures`` says which output there is; the count is that of its modules."""
    reading = read_config(row["config"])
    assert load_model(reading.model).parameters == row["parameters"]
    assert not reading.model.causal and not reading.unused


@pytest.mark.parametrize("name", PRESETS)
def test_count_of_presets(name: str) -> None:
    assert load_model(name).parameters == PRESETS[name]


def test_rounded_presets() -> None:
    """Sizes as their authors name them; NeMo's 4B is Megatron's 3.9B without its binary head."""
    sizes = {"megatron-bert-336m": 0.336, "megatron-bert-1.3b": 1.28, "megatron-bert-3.9b": 3.87,
             "geneformer-10m": 0.0103, "megatron-bert-4b": 3.86,
             "megatron-bert-20b": 22.0, "megatron-bert-100b": 98.2}  # fmt: skip
    for name, billions in sizes.items():
        assert load_model(name).parameters / 1e9 == pytest.approx(billions, rel=3e-3)


def _masked(name: str, layers: int | None = None) -> Model:
    """The preset as a masked language model alone."""
    spec = load_model(name).spec
    output = spec.output.model_copy(update={"pooler": False, "sentence_classes": 0})
    return spec.model_copy(update={"output": output, "layers": layers or spec.layers})


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row["case"])
def test_against_torch(row: dict[str, str]) -> None:
    """What layers of BERT and its likes keep in 16 bits to the byte; peaks of all within 3%, of these 0.3%."""
    batch, exact = int(row["micro_batch"]), row["model"] in EXACT
    setup = one_gpu(
        _masked(row["model"], int(row["layers"])), seq=int(row["seq"]), micro_batch=batch, global_batch=batch,
        attention="eager" if row["attn_impl"] == "eager" else "flash", precision=PRECISION[row["dtype_scheme"]],
        recompute=row["recompute"],
    )  # fmt: skip
    stage = recorded_stage(setup)
    saved, held = saved_of(setup, stage), states(setup, stage.parameters, Figures())
    if row["dtype_scheme"] == "bf16" and exact:
        assert saved.per_layer == int(row["saved_layer_mid"])
        assert saved.total == pytest.approx(int(row["saved_total"]), rel=1e-4)
    peak = max(moment.total for moment in moments_of(setup, stage, held, saved))
    assert peak == pytest.approx(int(row["peak_total"]), rel=3e-3 if exact else 3e-2)


def test_attention_sees_all_tokens() -> None:
    """Twice the work of causal attention, less than twice the time where blocks are short: their edges cost alike. As
    many FLOPs by the usual convention, which counts all."""
    plain = _masked("esm2-650m")
    ratios = []
    for seq in (1024, 8192, 131072):
        both = [one_gpu(one, seq=seq) for one in (plain, plain.model_copy(update={"causal": True}))]
        seconds = []
        for setup in both:
            (core,) = [one for one in layer_block(setup.context()).operations if one.name == "attention.core"]
            seconds.append(operation_sums(setup, Chip(setup), core)[0].attention)
        ratios.append(seconds[0] / seconds[1])
        assert model_flops(both[0]) == model_flops(both[1])
    assert 1.2 < ratios[0] < 1.5 < ratios[1] < 1.95 < ratios[2] < 2.0


def test_flops_of_bionemo() -> None:
    """(24 B S H^2 + 4 B S^2 H) 3 L + 6 B S H V, as BioNeMo counts ESM-2, but for norms, biases and the transform."""
    for name in ("esm2-650m", "esm2-3b", "esm2-15b"):
        spec = load_model(name).spec
        h, s, layers, vocab = spec.hidden, 1024, spec.layers, spec.vocab
        stated = (24 * s * h**2 + 4 * s**2 * h) * 3 * layers + 6 * s * h * vocab
        assert model_flops(one_gpu(name, seq=s)) * s == pytest.approx(stated, rel=4e-3)


def test_masked_positions_alone() -> None:
    """Where a framework computes the logits of masked positions only, head and loss shrink by their share."""
    whole = one_gpu("bert-large", micro_batch=8)
    kernels = whole.kernels.model_copy(update={"predicted_share": 0.15})
    part = replace(whole, kernels=kernels)
    kept = [saved_of(one, build_stages(one)[0]).head_and_loss for one in (whole, part)]
    assert kept[1] / kept[0] == pytest.approx(0.15, rel=1e-3)
    assert model_flops(part) < model_flops(whole)


def test_rotary_encoder_has_no_position_table() -> None:
    parts = load_model("esm2-650m").parts()
    assert parts["embedding"] == 33 * 1280
    assert parts["head"] == 2 * 1280 + (1280**2 + 3 * 1280) + 33 + (33 * 20 + 1)


def test_windows_of_modernbert() -> None:
    spec = load_model("modernbert-base").spec
    assert [layer for layer in range(spec.layers) if not spec.is_windowed(layer)] == list(range(0, 22, 3))
    stated = read_config({"model_type": "modernbert", "num_hidden_layers": 22}).model
    assert (stated.window, stated.window_pattern) == (spec.window, spec.window_pattern)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert", "num_hidden_layers": 2, "position_embedding_type": "relative_key"}, "relative"),
        ({"model_type": "bert", "num_hidden_layers": 2, "architectures": ["BertForChess"]}, "MaskedLM"),
        ({"model_type": "bret", "num_hidden_layers": 2}, "did you mean bert"),
        (
            {"model_type": "deberta-v2", "num_hidden_layers": 2, "relative_attention": True, "pos_att_type": ["p2p"]},
            "c2p",
        ),
        ({"model_type": "albert", "num_hidden_layers": 2}, "share one set of weights"),
        ({"model_type": "led", "encoder_layers": 2}, "blocked windows"),
    ],
)
def test_what_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError) as caught:
        read_config(config)
    assert words in str(caught.value)


def test_a_decoder_in_berts_clothes_is_causal() -> None:
    config = {"model_type": "bert", "num_hidden_layers": 2, "architectures": ["BertLMHeadModel"], "is_decoder": True}
    assert read_config(config).model.causal


def test_mistakes_in_a_model_file(tmp_path: Path) -> None:
    text = Path(catalog.path("models", "bert-base")).read_text()
    for old, new, words in (
        ("transform = true", 'predicts = "classes"', "classes 0"),
        ("transform = true", 'predicts = "classes"\nclasses = 3', "tied_embeddings must be false"),
        ("pooler = true\n", "", "needs a pooler"),
        ("causal = false", "causal = false\nmtp_layers = 1", "causal must be true"),
        ("token_types", "token_kinds", "did you mean token_types"),
    ):
        file = tmp_path / "mine.toml"
        file.write_text(text.replace(old, new, 1))
        with pytest.raises(DistsimError) as caught:
            load_model(str(file))
        assert words in str(caught.value)


def test_no_later_tokens_to_predict() -> None:
    with pytest.raises(DistsimError, match="encoder"):
        one_gpu("bert-large", mtp=1)


# Bytes that autograd keeps of transformers 5.23's modules on torch 2.13, eight images, bf16; two layers and four.
SCALED = {
    "dinov2-large": ({"ffn": 1024}, 65, (10_480_032, 20_089_632)),
    "dinov2-giant": ({"ffn": 688}, 65, (11_944_352, 23_018_272)),
    "dinov3-vit7b16": ({"ffn": 512}, 69, (11_853_856, 22_620_064)),
}


@pytest.mark.parametrize(("name", "case"), SCALED.items())
def test_layers_with_learned_scales_keep_what_autograd_keeps(
    name: str, case: tuple[dict[str, int], int, tuple[int, ...]]
) -> None:
    shape, tokens, kept = case
    model = load_model(name).spec
    rows = {"position_rows": tokens} if model.position_rows else {}
    small = {**model.model_dump(), "hidden": 256, "heads": 4, "kv_heads": 4, "head_dim": 64, **shape, **rows}
    for layers, bytes_kept in zip((2, 4), kept, strict=True):
        setup = one_gpu(Model.read({**small, "layers": layers}), seq=tokens, micro_batch=8, global_batch=8)
        assert saved_of(setup, build_stages(setup)[0]).total == pytest.approx(bytes_kept, rel=0.002)
