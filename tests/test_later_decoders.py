"""Decoders of 2026 that are a few facts away from others: Sarvam, Laguna, Apertus 1.5, North Vision, Lara, Emu3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ledgers import one_gpu

import distsim
from distsim.engine.jobs.flops import attended
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.layers.ledger import Operation

ORACLES = Path(__file__).parent / "oracles"
KINDS = ("plain", "mixtures", "hybrids")
CONFIGS = {
    name: config for kind in KINDS
    for name, config in json.loads((ORACLES / f"torch_{kind}_configs.json").read_text()).items()
}  # fmt: skip
# Forward products of one sequence of 992 tokens, composed attention, as torch 2.13's FlopCounterMode counts them on
# transformers 5.24's modules; those within the delta rule's kernels, which it cannot see, left out.
FLOPS = {
    "sarvammoe": 549_413_978_112, "sarvammla": 716_624_101_376, "apertus15": 598_107_750_400,
    "emu3": 594_987_188_224, "compass": 594_987_188_224, "compasswindow": 594_987_188_224,
    "laguna": 483_102_031_872, "lagunawindow": 507_871_494_144, "lagunaelement": 534_851_354_624,
    "lara": 231_994_294_272, "laraother": 181_967_781_888, "laraorder": 231_994_294_272,
}  # fmt: skip
ROTATED = {
    "full_attention": {"rope_type": "default", "partial_rotary_factor": 0.5},
    "sliding_attention": {"rope_type": "default"},
}
KINDS_OF_FOUR = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
LAGUNA = {
    "model_type": "laguna", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 4, "num_experts": 16, "layer_types": KINDS_OF_FOUR,
    "num_attention_heads_per_layer": [16, 24, 24, 16],
}  # fmt: skip


def _rows(model: Any, **options: Any) -> list[tuple[Operation, int]]:
    stage = build_stages(one_gpu(model, seq=992, micro_batch=1, **options))[0]
    outside = [(block, 1) for block in (stage.embedding, stage.head) if block]
    return [(row, times) for block, times in (*stage.layers, *outside) for row in block.operations]


@pytest.mark.parametrize("name", FLOPS)
def test_products_are_those_that_torch_counts(name: str) -> None:
    rows = _rows(read_config(CONFIGS[name]).model, attention="eager")
    assert sum(row.flops_forward * times for row, times in rows if row.kind != "scan") == FLOPS[name]


SMALL = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024}
VISION = {"text_config": SMALL, "vision_config": {"model_type": "x", "hidden_size": 64}}


@pytest.mark.parametrize(
    ("wrapper", "text", "parameters", "beside"),
    [
        ({**VISION, "model_type": "cohere_compass"}, {}, 272_632_320, ("vision_config",)),
        ({**VISION, "model_type": "cohere_compass", "tie_word_embeddings": True}, {}, 141_560_320, ("vision_config",)),
        ({**VISION, "model_type": "apertus1p5", "audio_config": {"model_type": "x"}},
         {"output_vocab_size": 131_072}, 212_079_624, ("vision_config", "audio_config")),
        ({"text_config": SMALL, "model_type": "emu3", "vq_config": {"embed_dim": 4}, "tie_word_embeddings": False},
         {"num_key_value_heads": 8}, 199_543_296, ("vq_config",)),
    ],
)  # fmt: skip
def test_text_within_a_wrapper(
    wrapper: dict[str, Any], text: dict[str, Any], parameters: int, beside: tuple[str, ...]
) -> None:
    """As counted on modules of transformers 5.24, what sees and hears left out; a text that names no family is its
    wrapper's."""
    outer = {"tie_word_embeddings": False, **wrapper, "text_config": {**wrapper["text_config"], **text}}
    reading = read_config(outer)
    assert load_model(reading.model).parameters == parameters
    assert (reading.beside, reading.unused) == (beside, ())


def test_an_output_layer_for_the_first_words_alone() -> None:
    """Apertus 1.5: the embedding has all rows, logits and loss are of the others."""
    config = CONFIGS["apertus15"]
    model = read_config(config).model
    assert (model.vocab, model.extra_words) == (32_768, 66_752 - 32_768)
    whole = read_config({**config, "output_vocab_size": 66_752}).model
    assert (whole.vocab, whole.extra_words) == (66_752, 0)
    assert load_model(whole).parameters - load_model(model).parameters == model.hidden * model.extra_words
    with pytest.raises(DistsimError, match="output_vocab_size with tie_word_embeddings"):
        read_config({**config, "tie_word_embeddings": True})
    with pytest.raises(DistsimError, match="output_vocab_size is 66753"):
        read_config({**config, "output_vocab_size": 66_753})


def test_heads_of_laguna() -> None:
    """By kind of layer, at the rate of queries' width; a list that differs within one kind is refused."""
    model = read_config(LAGUNA).model
    assert model.head_counts == ((16, 4), (24, 4))
    assert attended(model, 4096, 4096)[0] == 4 * 20 / 16
    only = read_config({**LAGUNA, "layer_types": ["sliding_attention"] * 4,
                        "num_attention_heads_per_layer": [24] * 4}).model  # fmt: skip
    assert (only.heads, only.windowed, only.window) == (24, None, 512)
    plain = read_config({"model_type": "laguna", "hidden_size": 1024, "num_hidden_layers": 3}).model
    assert (plain.heads, plain.window, plain.rotary_fraction) == (48, None, 0.5)
    for wrong, problem in (
        ({"num_attention_heads_per_layer": [16, 24, 16, 16]}, "differs between layers of one kind"),
        ({"num_attention_heads_per_layer": [16, 24, 24]}, "one entry for each of the 4 layers"),
        ({"sliding_window": None}, "layers that have it have their own heads"),
        ({"gating": "per-layer"}, "expected per-head or per-element"),
        ({"moe_apply_router_weight_on_input": True}, "does not build such experts"),
    ):
        with pytest.raises(DistsimError, match=problem):
            read_config({**LAGUNA, **wrong})


def test_shares_that_laguna_rotates() -> None:
    """A file's own settings hold for all kinds of layers, the code's only where it states none."""
    assert read_config(LAGUNA).model.rotary_fraction == 0.75
    assert read_config({**LAGUNA, "rope_parameters": ROTATED}).model.rotary_fraction == 0.75
    plain = {kind: {"rope_type": "default"} for kind in ROTATED}
    assert read_config({**LAGUNA, "rope_parameters": plain}).model.rotary_fraction == 1.0


@pytest.mark.parametrize(
    ("gating", "kind", "width"),
    [(True, "head", 1), ("per-head", "head", 1), ("per-element", "apart", 128), (False, "apart", 128)],
)
def test_gates_of_laguna(gating: bool | str, kind: str, width: int) -> None:
    """A product of its own makes them; a softplus keeps what it reads in fp32, the sigmoid of others nothing more."""
    model = read_config({**LAGUNA, "gating": gating}).model
    assert model.attention_gate == kind
    (made, _), *_ = [one for one in _rows(model) if one[0].name == "attention.gate_projection"]
    assert made.parameters[0].elements == 1024 * 16 * width
    kept = {}
    for function in ("softplus", "sigmoid"):
        rows = _rows(model.model_copy(update={"gate_function": function}))
        gate = next(row for row, _ in rows if row.name == "attention.gate")
        kept[function] = sum(tensor.size_bytes for tensor in gate.saved)
    assert kept["softplus"] - kept["sigmoid"] == 992 * 16 * width * 4


def test_capped_logits_of_a_router() -> None:
    capped = CONFIGS["lagunaelement"]
    assert capped["moe_router_logit_softcapping"] == 30.0
    experts = read_config(capped).model.experts
    assert experts is not None
    assert experts.score_softcap
    plain = read_config({**capped, "moe_router_logit_softcapping": 0.0}).model.experts
    assert plain == experts.model_copy(update={"score_softcap": False})


def test_windows_only_where_a_list_names_them() -> None:
    """North Vision and Laguna; Lara's kinds of layers have a period of five."""
    for name in ("cohere_compass_text", "laguna"):
        config = {"model_type": name, "hidden_size": 1024, "num_hidden_layers": 4, "sliding_window": 512}
        assert read_config(config).model.window is None
        listed = read_config({**config, "layer_types": KINDS_OF_FOUR}).model
        assert (listed.window, listed.window_pattern) == (512, (False, True, True, False))
    lara = read_config({"model_type": "lara_mini", "hidden_size": 1024, "num_hidden_layers": 7}).model
    assert [lara.is_recurrent(layer) for layer in range(7)] == [True, False, True, False, False, True, False]
    assert [layer for layer in range(7) if lara.is_windowed(layer)] == [1, 4, 6]
    attending = read_config({"model_type": "lara_mini", "num_hidden_layers": 2, "layer_types": KINDS_OF_FOUR[:2]}).model
    assert attending.delta is None and not attending.recurrent
    assert attending.window_pattern == (False, True)


def test_sarvam_by_the_keys_of_its_own_code() -> None:
    """Names that its first files have beside transformers' own (configuration_sarvam_moe.py, _mla.py)."""
    shape = {"hidden_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 16}
    theirs = {"num_experts": 16, "num_shared_experts": 1}
    ours = {"n_routed_experts": 16, "n_shared_experts": 1}
    for name, own, other in (
        ("sarvam_moe", {"use_qkv_bias": True}, {"attention_bias": True}),
        ("sarvam_mla", {"q_head_dim": 192, "head_dim": 576}, {}),
    ):
        first = read_config({"model_type": name, **shape, **theirs, **own})
        second = read_config({"model_type": name, **shape, **ours, **other})
        assert first.model == second.model
        assert not first.unused
        assert first.model.experts is not None
        assert first.model.experts.count == 16


def test_stages_and_ranks_of_layers_with_their_own_heads() -> None:
    """Heads of both kinds are shared out, in pipelines too; seven ranks divide neither."""
    options: dict[str, Any] = {"gpu": "h200-sxm", "seq": 2048, "micro_batch": 1}
    report = distsim.memory(model=read_config(LAGUNA).model, gpus=8, tp=2, pp=2, ep=2, **options)
    assert 0 < report.peak < 141e9
    with pytest.raises(DistsimError, match="16 and 24 attention heads"):
        distsim.memory(model=read_config(LAGUNA).model, gpus=7, tp=7, **options)


def test_dory_is_refused() -> None:
    with pytest.raises(DistsimError, match="run several times in a step"):
        read_config({"model_type": "dory", "hidden_size": 64})
