"""Families that are a few facts away from others: counts of each, what they keep, what a wrapper says, refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from ledgers import counted, longer_costs_more
from recordings import PRECISION

import distsim
from distsim.cli.app import run
from distsim.engine.figures import Figures
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.interop.huggingface.families import load_family, supported
from distsim.interop.huggingface.refused import REFUSED
from distsim.layers.ledger import distinct_saved
from distsim.layers.network import layer_kind
from distsim.specs.job import Job

ORACLES = Path(__file__).parent / "oracles"
# Counted on the instantiated (meta) modules of transformers 5.23, of later families 5.24; of several modalities the
# decoder with its output layer. Of each family one configuration is whole and the others state what differs from the
# defaults.
COUNTS = json.loads((ORACLES / "plain.json").read_text())
# One step of those modules on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says; of several
# modalities on text alone.
MEMORY = list(csv.DictReader((ORACLES / "torch_plain.csv").open()))
CONFIGS = json.loads((ORACLES / "torch_plain_configs.json").read_text())
LAYER, TOTAL = 5e-4, 0.012
SIDES = {side: {"hidden_size": 64, "num_hidden_layers": 2} for side in ("text_config", "vision_config")}


def _setup(config: dict[str, Any], **options: Any) -> Setup:
    usual = {"gpu": "h100-sxm", "gpus": 1, "framework": "huggingface", "precision": "pure-bf16"}
    return resolve(Job(model=read_config(config).model, **{**usual, **options}))


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: f"{row['config']['architectures'][0]}-{row['parameters']}")
def test_counts(row: dict[str, Any]) -> None:
    counted(row)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mpnet-base", 109_518_527), ("sentence-transformers/all-mpnet-base-v2", 109_486_464),
        ("mpnet-base-MPNetForSequenceClassification", 109_488_002), ("nomic-embed-text-v1.5", 136_731_648),
        ("nomic-embed-text-v1.5-NomicBertForMaskedLM", 137_354_304), ("gte-multilingual-base", 305_368_320),
        ("gte-multilingual-base-GteForMaskedLM", 306_210_496), ("electra-small-discriminator", 13_549_057),
        ("electra-base-ElectraForPreTraining", 109_483_009), ("electra-large", 335_142_913),
        ("electra-small-ElectraForMaskedLM", 13_546_682), ("electra-small-ElectraModel", 13_483_008),
        ("eurobert-210m", 310_266_624), ("eurobert-210m-EuroBertForSequenceClassification", 212_358_146),
        ("esmc-6b", 6_352_005_184), ("bitnet-b1.58-2B-4T", 2_412_820_480), ("molmo2-8b", 8_191_259_648),
        ("kolibri-1", 78_103_055_360), ("flint", 39_785_287_456), ("muse-glimmer-30b", 27_854_780_928),
        ("glm-5.3-flash", 313_326_816_766), ("embeddinggemma-2", 271_002_624),
        ("muse-spark-816b", 819_990_536_192),
    ],
)  # fmt: skip
def test_presets(name: str, parameters: int) -> None:
    assert load_model(name).parameters == parameters


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row["case"])
def test_against_torch(row: dict[str, str]) -> None:
    """A layer keeps what PyTorch keeps within 0.05%, mostly to the byte; all of it within 1.2%."""
    batch, seq = int(row["micro_batch"]), int(row["seq"])
    targets = {"decoder_seq": int(row["dec_seq"])} if row["dec_seq"] else {}
    setup = _setup(
        CONFIGS[row["model"]], seq=seq, micro_batch=batch, global_batch=batch, recompute=row["recompute"],
        attention="eager" if row["attn_impl"] == "eager" else "flash", precision=PRECISION[row["dtype_scheme"]],
        **targets,
    )  # fmt: skip
    stage = build_stages(setup)[0]
    saved = saved_of(setup, stage)
    assert saved.total == pytest.approx(int(row["saved_total"]), rel=TOTAL)
    if "text_config" not in CONFIGS[row["model"]] and not row["model"].startswith(("phi4", "flint")):
        held = states(setup, stage.parameters, Figures())  # flint's routers and sinks stay in fp32
        assert held.parameters == pytest.approx(int(row["static_param"]), rel=1e-4)
    if row["recompute"] == "none" and not targets:
        kind = layer_kind(setup.model, int(row["layers"]) // 2)
        middle = next(block for block, _ in stage.layers if block.name == kind)
        assert sum(distinct_saved(middle.operations).values()) == pytest.approx(int(row["saved_layer_mid"]), rel=LAYER)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_command_knows_it(name: str) -> None:
    """Time and traffic of one job, shared out in every way that its layers allow; longer sequences cost more."""
    config = CONFIGS[name]
    model = read_config(config).model
    options: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 4, "framework": "fsdp", "zero": 3, "micro_batch": 1}
    longer_costs_more(model, 256, **options)
    tp = 1 if any(kv_heads % 2 for _, kv_heads in model.head_counts) else 2
    options = {"gpu": "h100-sxm", "gpus": 4, "framework": "megatron-core", "tp": tp, "seq": 256, "micro_batch": 1}
    if not (model.encoder_layers or model.layer_inputs):
        options["pp"] = 2
    assert 0 < distsim.memory(model=model, **options).peak < 80e9


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        ({"model_type": "cwm", "num_hidden_layers": 4, "mlp_bias": True}, 3_514_030_080),
        ({"model_type": "deepseek_v2", "num_hidden_layers": 4, "mlp_bias": True}, 5_560_584_176),
        ({"model_type": "hy_v3", "num_hidden_layers": 4, "attention_bias": True}, 12_386_137_088),
        ({"model_type": "hy_v3", "num_hidden_layers": 4, "mlp_bias": True}, 12_386_131_968),
        ({"model_type": "minicpm3", "num_hidden_layers": 4, "mlp_bias": True}, 438_790_656),
        ({"model_type": "nanochat", "num_hidden_layers": 4, "attention_bias": True}, 137_048_064),
        ({"model_type": "exaone", "num_hidden_layers": 5}, 1_929_424_896),
        ({"model_type": "exaone", "num_hidden_layers": 5, "attention_bias": True}, 1_929_476_096),
        ({"model_type": "exaone", "num_hidden_layers": 5, "mlp_bias": True}, 1_929_588_736),
        ({"model_type": "deepseek_v4", "num_hidden_layers": 5, "mlp_bias": True}, 33_977_437_907),
        ({"model_type": "bailing_hybrid", "num_hidden_layers": 5, "linear_num_heads": 64}, 10_611_003_840),
        ({"model_type": "llama4_text", "num_hidden_layers": 5, "moe_layers": []}, 3_641_891_840),
        ({"model_type": "glm5_next_text", "num_hidden_layers": 4, "tie_word_embeddings": True}, 8_902_771_736),
        ({"model_type": "muse_spark_text", "num_hidden_layers": 4, "tie_word_embeddings": True}, 55_999_406_080),
        ({"model_type": "deepseek_ocr2_text", "num_hidden_layers": 4, "mlp_bias": True, "num_experts_per_tok": 4,
          "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}, 4_666_705_908),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"], "num_hidden_layers": 4,
          "tie_word_embeddings": False}, 76_282_740),
        ({"model_type": "mpnet", "num_hidden_layers": 4, "tie_word_embeddings": False}, 76_289_278),
        ({"model_type": "jina_embeddings_v3", "architectures": ["JinaEmbeddingsV3ForMaskedLM"],
          "num_hidden_layers": 4, "tie_word_embeddings": False}, 563_943_716),
    ],
)  # fmt: skip
def test_switches(config: dict[str, Any], parameters: int) -> None:
    """Keys that are off by default, counted on modules as above."""
    assert load_model(read_config(config).model).parameters == parameters


@pytest.mark.parametrize(
    ("wrapper", "family"),
    [
        ("exaone4_5", "exaone4"), ("kimi_k25", "deepseek_v3"), ("lfm2_vl", "lfm2"), ("minicpmv4_6", "qwen3_5_text"),
        ("ovis2", "qwen2"), ("qwen3_asr", "qwen3"), ("shieldgemma2", "gemma3_text"), ("step3p7", "step3p5"),
        ("voxtral", "llama"),
    ],
)  # fmt: skip
def test_a_text_that_names_no_family_is_what_its_wrapper_has(wrapper: str, family: str) -> None:
    """As transformers 5.24's configuration classes fill it in."""
    assert read_config({"model_type": wrapper, "text_config": {"num_hidden_layers": 4}}).model.family == family


def test_a_wrapper_says_whether_its_output_layer_is_tied() -> None:
    """The class around a text has the output layer; a whole language model inside has its own."""
    text = {"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 1000}  # fmt: skip
    for outer, inner, expected in ((True, False, True), (False, True, False), (None, True, True)):
        stated = {} if outer is None else {"tie_word_embeddings": outer}
        wrapped = {"model_type": "internvl", **stated, "text_config": {**text, "tie_word_embeddings": inner}}
        assert read_config(wrapped).model.tied_embeddings is expected
    remote = {"model_type": "internvl_chat", "tie_word_embeddings": True, "llm_config": text}
    assert not read_config(remote).model.tied_embeddings


def test_a_wrapper_says_what_its_text_tells() -> None:
    """ModernVBERT's class is the wrapper's; 188,337,856 of its modules are the text's."""
    text = {"model_type": "modernbert", "num_hidden_layers": 22}
    outer = {"model_type": "modernvbert", "architectures": ["ModernVBertForMaskedLM"], "tie_word_embeddings": False}
    reading = read_config({**outer, "text_config": text, "vision_config": {"model_type": "x"}})
    assert load_model(reading.model).parameters == 188_337_856


def test_what_stands_beside_is_named() -> None:
    reading = read_config(CONFIGS["phi4_multimodal"] | {"vision_config": {"a": 1}, "audio_config": {"b": 2}})
    assert reading.beside == ("vision_config", "audio_config")
    assert not reading.unused
    assert not read_config({"model_type": "mpt", "d_model": 64, "attn_config": {"alibi": True}}).beside


# As they are on the Hub, written for remote code, irrelevant keys left out (recalled).
HUB = {
    "nomic-embed-text-v1.5": {
        "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "activation_function": "swiglu",
        "attn_pdrop": 0.0, "causal": False, "dense_seq_output": True, "embd_pdrop": 0.0, "fused_bias_fc": True,
        "fused_dropout_add_ln": True, "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
        "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12, "n_positions": 8192, "parallel_block": False,
        "pad_vocab_size_multiple": 64, "prenorm": False, "qkv_proj_bias": False, "resid_pdrop": 0.0,
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "scale_attn_weights": True, "type_vocab_size": 2,
        "use_flash_attn": True, "use_rms_norm": False, "use_xentropy": True, "vocab_size": 30528,
    },
    "gte-multilingual-base": {
        "model_type": "new", "architectures": ["NewModel", "NewForTokenClassification"], "hidden_act": "gelu",
        "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.1, "hidden_size": 768, "pack_qkv": True,
        "intermediate_size": 3072, "layer_norm_type": "layer_norm", "max_position_embeddings": 8192,
        "num_attention_heads": 12, "num_hidden_layers": 12, "position_embedding_type": "rope", "rope_theta": 20000,
        "type_vocab_size": 1, "unpad_inputs": False, "use_memory_efficient_attention": False, "vocab_size": 250048,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", HUB)
def test_published_files(name: str) -> None:
    reading = read_config(HUB[name])
    assert load_model(reading.model).parameters == load_model(name).parameters
    assert not reading.unused


def test_windows_by_default() -> None:
    """Where no list names the layers: every fourth from the first on, or Flint's, sees all."""
    granite = read_config({"model_type": "granite_swa", "num_hidden_layers": 6}).model
    assert [granite.is_windowed(layer) for layer in range(6)] == [False, True, True, True, False, True]
    flint = read_config({"model_type": "flint", "num_hidden_layers": 9}).model
    assert [layer for layer in range(9) if not flint.is_windowed(layer)] == [0, 1, 5, 8]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "jetmoe", "num_hidden_layers": 2}, "experts that a router chooses"),
        ({"model_type": "mllama", "text_config": {"model_type": "mllama_text_model", "hidden_size": 64}}, "an image"),
        ({"model_type": "mvp", "d_model": 64, "use_prompt": True}, "prompts are not supported"),
        ({"model_type": "clip", "architectures": ["CLIPForImageClassification"], **SIDES}, "CLIPModel"),
        ({"model_type": "molmo2_text", "hidden_size": 64, "qk_norm_type": "new"}, "qwen3 or olmo"),
        ({"model_type": "modernbert-decoder", "hidden_size": 64,
          "architectures": ["ModernBertDecoderForSequenceClassification"]}, "CausalLM"),
        ({**HUB["nomic-embed-text-v1.5"], "prenorm": True}, "only what transformers itself builds"),
        ({"model_type": "gpt2", "n_embd": 64, "add_cross_attention": True}, "attention to a second model"),
        ({"model_type": "llama5", "hidden_size": 64}, "did you mean llama?"),
        ({"model_type": "stranger", "hidden_size": 64}, "write the name of a supported family with the same layers"),
        ({"hidden_size": 64}, 'add "model_type", such as "llama"'),
    ],
)  # fmt: skip
def test_what_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError) as caught:
        read_config(config)
    assert words in str(caught.value)


def test_hints_name_no_unlike_family() -> None:
    """A name is hinted at only where it could have been meant; what is known says why it is refused instead."""
    for name in ("convbert", "yoso", "jetmoe2", "tapas2", "udop2"):
        with pytest.raises(DistsimError) as caught:
            load_family(name)
        assert "did you mean" not in str(caught.value)
    assert all(
        why.startswith(("it ", "its ", "images ", "some ", "each ", "half ", "layers ")) for why in REFUSED.values()
    )
    assert all(len(why) < 110 for why in REFUSED.values())


def test_families_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "families", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["families"] == supported() and "jetmoe" in told["refused"]
    assert run(["show", "family", "granite_swa", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["keys"]["sliding_window"] == 128 and told["flags"]["mlp_bias"] == "mlp_bias"
    assert run(["show", "families"]) == 0
    assert f"{len(supported())} families" in capsys.readouterr().out
    assert run(["show", "family", "jetmoe"]) == 2
    assert "experts that a router chooses" in capsys.readouterr().err
