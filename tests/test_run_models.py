"""Which network a measured run's row means by the name of its model, its family and its counts."""

from __future__ import annotations

from typing import Any

import pytest

from distsim import catalog
from distsim.interop.runs import Run
from distsim.interop.runs.models import assumed_model, model_of
from distsim.interop.runs.table import MissingCell
from distsim.specs.model import Model

JOB = {"seq_len": 2048, "gpu": "h100-sxm", "n_gpus": 8, "precision": "bf16", "framework": "huggingface"}
ASIDE = {"name", "aliases", "source", "checked", "vocab"}


def _run(**cells: Any) -> Run:
    return Run({name: str(value) for name, value in {**JOB, **cells}.items()}, 2)


def _preset(name: str) -> Model:
    found = catalog.load("models", name)
    assert isinstance(found, Model)
    return found


def _cells_of(model: Model) -> dict[str, Any]:
    return {"model": model.name, "family": model.family, "layers": model.encoder_layers or model.layers,
            "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv_heads, "ffn_hidden": model.ffn,
            "vocab": model.vocab}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["gemma-3n-e2b", "gemma-2-9b", "olmo-1b", "bamba-9b", "t5-11b", "deberta-v3-base", "electra-base", "mamba-2.8b",
     "recurrentgemma-9b", "mixtral-8x7b"],
)  # fmt: skip
def test_a_padded_vocabulary_leaves_a_preset_what_it_is(name: str) -> None:
    """They had become plain layers of their shape, or were refused."""
    preset = _preset(name)
    padded = model_of(_run(**{**_cells_of(preset), "vocab": preset.vocab + 64}))
    assert padded.vocab == preset.vocab + 64
    assert padded.model_dump(exclude=ASIDE) == preset.model_dump(exclude=ASIDE)


def test_a_row_overrules_the_tie_and_the_vocabulary_of_a_preset_without_a_shape() -> None:
    told = model_of(_run(model="gemma-2-9b", tied_embeddings=0, vocab=50_304))
    assert (told.tied_embeddings, told.vocab, told.norms_per_layer) == (False, 50_304, 4)
    assert model_of(_run(model="mixtral-8x7b", n_experts=16)).experts.count == 16  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "preset"),
    [("LLAMA31_405B", "llama-3.1-405b"), ("DeepSeek-R1-0528", "deepseek-v3"), ("DeepSeekMoE 16B", "deepseek-moe-16b"),
     ("Qwen3-235B-A22B-Thinking-2507", "qwen3-235b-a22b-2507"), ("gptoss-120b", "gpt-oss-120b"),
     ("Mixtral-8x7B-LoRA", "mixtral-8x7b"), ("Llama 3.1 8B LoRA", "llama-3.1-8b"), ("Gemma 3 27B SFT", "gemma-3-27b"),
     ("unsloth/llama-3-8b-bnb-4bit", "llama-3-8b"), ("llama3_8b_fp8", "llama-3-8b"),
     ("meta-llama/Llama-3.1-8B-FP8", "llama-3.1-8b"), ("Llama 3.1-70b pretrain", "llama-3.1-70b"),
     ("Mistral 7B v0.2", "mistral-7b-v0.2"), ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
     ("EleutherAI/pythia-12b-deduped", "pythia-12b"), ("bert-base-cased", "bert-base-cased"),
     ("GPT-2 345M", "gpt2-medium"), ("GPT2-Large 774M", "gpt2-large"), ("GPT-2 1.5B", "gpt2-xl"),
     ("Megatron-Turing NLG 530B", "mt-nlg-530b"), ("Command R+", "command-r-plus-104b"),
     ("Command R", "command-r-35b"), ("Nemotron V3 Ultra 550B", "nemotron-3-ultra-550b-a55b"),
     ("command-r-08-2024", "command-r-08-2024-32b")],
)  # fmt: skip
def test_usual_spellings_of_a_presets_name(name: str, preset: str) -> None:
    assert model_of(_run(model=name)) == _preset(preset)


@pytest.mark.parametrize("name", ["Llama 3.8B", "GLM-4-9B-0520", "command-r-12-2024"])
def test_other_networks_by_nearly_the_same_name(name: str) -> None:
    with pytest.raises(MissingCell, match="not a preset"):
        model_of(_run(model=name))


SHAPE = {"layers": 20, "hidden": 2048, "heads": 16, "vocab": 50_304}


@pytest.mark.parametrize(
    ("name", "family"),
    [("Llama-3.1-8B (vocab 50432)", "llama"), ("GPT 20L-2048H", "gpt"), ("GPT-3 126M", "gpt2"), ("MPT of ours", "mpt"),
     ("Qwen-2 7B, 20 layers", "qwen2"), ("Mixtral 8x3B", "mixtral"), ("Yi 35B", "yi"), ("mpt-30b", "mpt"),
     ("Llama3.1 ours", "llama"), ("gpt-oss 7B", "gpt_oss")],
)  # fmt: skip
def test_a_blank_family_is_what_the_models_name_begins_with(name: str, family: str) -> None:
    run = _run(model=name, **SHAPE)
    assert model_of(run).family == family
    assert "family is blank: assumed" in assumed_model(run)


@pytest.mark.parametrize("name", ["ours", "Yields of 20 layers", "mamba-gpt", "T5 of ours"])
def test_a_blank_family_that_no_name_tells(name: str) -> None:
    with pytest.raises(MissingCell, match="family is blank"):
        model_of(_run(model=name, **SHAPE))


@pytest.mark.parametrize(
    ("spelled", "family"),
    [("MPT", "mpt"), ("Gemma2", "gemma2"), ("gemma-2", "gemma2"), ("gemma 3", "gemma3_text"), ("gpt-2", "gpt2"),
     ("GPT-3", "gpt3"), ("qwen-3", "qwen3"), ("Nemotron-4", "nemotron"), ("GPT-NeoX", "gpt_neox"),
     ("LLaMA-3.1", "llama"), ("llama4", "llama4_text"), ("GPT", "gpt"), ("Mixtral", "mixtral")],
)  # fmt: skip
def test_a_family_is_stored_as_presets_spell_it(spelled: str, family: str) -> None:
    """By another case or mark it had lost what frameworks do for it."""
    ours = model_of(_run(model="ours", family=spelled, **SHAPE))
    assert ours.family == family
    assert "not known" not in assumed_model(_run(model="ours", family=spelled, **SHAPE))


@pytest.mark.parametrize("name", ["nemotron-3-nano-30b-a3b", "t5-base", "gemma-3n-e2b"])
def test_layers_of_several_kinds_are_not_cut(name: str) -> None:
    """A pattern of 52 layers had stayed on 26: refused in words of the library that checks fields."""
    with pytest.raises(MissingCell, match=r"layers 26 is not .*several kinds"):
        model_of(_run(model=name, layers=26))


MAVERICK = {"model": "ours", "family": "llama4", "layers": 48, "hidden": 5120, "heads": 40, "kv_heads": 8,
            "ffn_hidden": 16_384, "vocab": 202_048, "n_experts": 128, "top_k": 1, "moe_ffn_hidden": 8192,
            "shared_experts": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "dense", "told"),
    [
        ({"n_params_b": "400.7"}, tuple(range(0, 48, 2)), "in every second layer, from n_params_b"),
        ({"n_params_b": 730}, (0, 1, 2), "in all layers but the first 3, from n_params_b"),
        ({"n_params_b": 780}, (), ""),
        ({"n_params_b": 17}, (), "n_params_b 17 contradicts the other cells, which give 784"),
        ({}, (), ""),
    ],
    ids=str,
)
def test_a_count_of_parameters_tells_which_layers_have_experts(
    cells: dict[str, Any], dense: tuple[int, ...], told: str
) -> None:
    """Experts in each of Maverick's layers take twice its time, and nothing said so."""
    run = _run(**MAVERICK, **cells)
    experts = model_of(run).experts
    assert experts is not None and experts.dense_layers == dense
    assert told in assumed_model(run) and bool(told) == bool(assumed_model(run))
