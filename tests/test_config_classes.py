"""What a class under ``architectures`` counts of two stacks; decoders in files of what reads images; experts in files
of dense families; keys that a family has or lacks."""

import json
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.interop.models import reading_notes
from distsim.layers.ledger import distinct_saved
from distsim.specs.job import Job

T5 = {"model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 8, "num_heads": 4, "num_layers": 3,
      "num_decoder_layers": 2, "vocab_size": 1000}  # fmt: skip
GATED = {**T5, "feed_forward_proj": "gated-gelu"}
XXL = {"model_type": "t5", "d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_heads": 64, "num_layers": 24,
       "num_decoder_layers": 24, "feed_forward_proj": "gated-gelu", "vocab_size": 32128}  # fmt: skip
BART = {"model_type": "bart", "d_model": 64, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 1000}  # fmt: skip
MNLI = {"model_type": "bart", "d_model": 1024, "id2label": {"0": "a", "1": "b", "2": "c"}}
SEVEN = {"num_labels": 7}
WHISPER = {**BART, "model_type": "whisper", "vocab_size": 51865}
LLAMA = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
         "vocab_size": 32000}  # fmt: skip


# Counted on the instantiated (meta) modules of transformers 5.23.
@pytest.mark.parametrize(
    ("named", "config", "parameters"),
    [
        ("T5EncoderModel", XXL, 4_762_310_656),
        ("T5EncoderModel", T5, 138_304),
        ("T5EncoderModel", GATED, 162_880),
        ("T5ForTokenClassification", {**GATED, **SEVEN}, 163_335),
        ("T5ForSequenceClassification", {**GATED, **SEVEN}, 249_991),
        ("T5ForQuestionAnswering", GATED, 245_506),
        ("MT5EncoderModel", {**GATED, "model_type": "mt5"}, 162_880),
        ("MT5ForSequenceClassification", {**T5, **SEVEN, "model_type": "mt5", "feed_forward_proj": "relu"}, 209_031),
        ("BartForSequenceClassification", {**BART, **SEVEN}, 401_095),
        ("BartForSequenceClassification", MNLI, 407_344_131),
        ("BartForQuestionAnswering", BART, 396_610),
        ("MBartForSequenceClassification", {**BART, **SEVEN, "model_type": "mbart"}, 401_351),
        ("BartForConditionalGeneration", BART, 396_480),
        ("WhisperForConditionalGeneration", WHISPER, 3_672_512),
    ],
)  # fmt: skip
def test_classes_of_two_stacks(named: str, config: dict[str, Any], parameters: int) -> None:
    reading = read_config({**config, "architectures": [named]})
    assert load_model(reading.model).parameters == parameters
    assert not reading.other_output and not reading.unused


@pytest.mark.parametrize(
    ("named", "config", "told"),
    [
        ("T5Model", GATED, "T5Model"),
        ("BartModel", BART, "BartModel"),
        ("MarianMTModel", {**BART, "model_type": "marian"}, ""),
        ("T5WithLMHeadModel", T5, ""),
    ],
)
def test_bare_stacks_are_told(named: str, config: dict[str, Any], told: str) -> None:
    """The output layer that is counted all the same, as of decoders."""
    assert read_config({**config, "architectures": [named]}).other_output == told


@pytest.mark.parametrize(
    ("named", "config"),
    [
        ("WhisperForAudioClassification", WHISPER),
        ("BartForCausalLM", BART),
        ("BartForTokenClassification", BART),
        ("T5Stack", T5),
    ],
)
def test_classes_of_one_stack_are_refused(named: str, config: dict[str, Any]) -> None:
    with pytest.raises(DistsimError, match="not supported") as caught:
        read_config({**config, "architectures": [named]})
    assert "ForConditionalGeneration" in str(caught.value)


def _setup(config: dict[str, Any], **options: Any) -> Setup:
    usual = {"gpu": "h100-sxm", "gpus": 1, "framework": "huggingface", "precision": "amp-bf16", "micro_batch": 2}
    return resolve(Job(model=read_config(config).model, **{**usual, **options}))


@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_an_encoder_alone_keeps_what_it_keeps_before_a_decoder(attention: str) -> None:
    """Its layers are the same rows, its end has the same norm and dropout; no loss reads a vocabulary."""
    alone, both = (
        build_stages(_setup({**XXL, "num_layers": 2, "architectures": [named]}, attention=attention, seq=256))[0]
        for named in ("T5EncoderModel", "T5ForConditionalGeneration")
    )
    layers = [stage.layers[0][0].operations for stage in (alone, both)]
    assert layers[0] == layers[1]
    assert alone.head is not None and both.head is not None
    ends = [{one.name: sum(distinct_saved([one]).values()) for one in stage.head.operations}
            for stage in (alone, both)]  # fmt: skip
    assert ends[0]["final_norm.dropout"] == ends[1]["encoder.dropout"] > 0
    assert "head" not in ends[0]


def test_every_command_knows_an_encoder_of_t5() -> None:
    model = read_config({**XXL, "architectures": ["T5EncoderModel"]}).model
    options: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 8, "micro_batch": 2, "seq": 256}
    assert distsim.step(model=model, framework="fsdp", zero=3, **options).seconds > 0
    assert distsim.memory(model=model, framework="megatron-core", tp=2, pp=2, **options).peak > 0


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"model_type": "xverse", "num_experts": 64, "moe_top_k": 6},
            "num_experts is 64, but xverse is a dense family",
        ),
        ({"model_type": "llama", "num_local_experts": 8}, "num_local_experts is 8"),
        ({"model_type": "phi-msft", "num_local_experts": 4}, "num_local_experts is 4"),
        ({"model_type": "nomic_bert", "num_experts": 8, "moe_every_n_layers": 2}, "num_experts is 8"),
        ({"model_type": "llama", "num_experts": [4, 8]}, "num_experts is a list"),
        ({"model_type": "llama", "n_routed_experts": "8"}, "a whole number"),
    ],
)
def test_experts_of_dense_families_are_refused(config: dict[str, Any], told: str) -> None:
    with pytest.raises(DistsimError, match=told):
        read_config({**LLAMA, **config})


def test_one_expert_is_none(tmp_path: Path) -> None:
    """Files of dense models may state one expert; no hint names the key that was given."""
    config = {**LLAMA, "model_type": "llama", "num_experts": 1, "num_experts_per_tok": 2, "hiden_size": 8}
    assert load_model(read_config(config).model).parameters == 6_738_415_616
    (tmp_path / "config.json").write_text(json.dumps(config))
    notes = {note.split("'")[1]: note for note in reading_notes(str(tmp_path)) if "was ignored" in note}
    assert set(notes) == {"num_experts_per_tok", "hiden_size"}
    assert "did you mean" not in notes["num_experts_per_tok"] and "hidden_size" in notes["hiden_size"]


TOWER = {"mm_vision_tower": "openai/clip-vit-large-patch14-336", "mm_hidden_size": 1024, "image_aspect_ratio": "pad",
         "mm_projector_type": "mlp2x_gelu", "tune_mm_mlp_adapter": True}  # fmt: skip
PHI3 = {"model_type": "phi3_v", "architectures": ["Phi3VForCausalLM"], "hidden_size": 3072, "embd_layer": {"x": "y"},
        "img_processor": {"name": "clip_vision_model", "num_img_tokens": 144}}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "family", "parameters"),
    [
        ({**LLAMA, **TOWER, "model_type": "llava", "architectures": ["LlavaLlamaForCausalLM"]}, "llama", 6_738_415_616),
        ({**LLAMA, **TOWER, "model_type": "llava_llama"}, "llama", 6_738_415_616),
        # 4,096 + 2 * 4,096 biases on queries, keys and values of each layer
        ({**LLAMA, **TOWER, "model_type": "llava", "architectures": ["LlavaQwenForCausalLM"]}, "qwen2", 6_738_808_832),
        # 4,146,621,440 of Phi-3.5 Vision (recalled) less CLIP's 303,507,456 and 22,034,432 of the projection
        (PHI3, "phi3", 3_821_079_552),
    ],
)
def test_decoders_beside_what_reads_images(config: dict[str, Any], family: str, parameters: int) -> None:
    reading = read_config(config)
    assert (reading.model.family, load_model(reading.model).parameters) == (family, parameters)
    assert reading.beside and not reading.unused


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "llava", "architectures": ["LlavaGemmaForCausalLM"]}, "the decoder's family"),
        ({"model_type": "minicpmv", "version": 2.6}, "2.6: qwen2"),
    ],
)
def test_decoders_that_are_not_known(config: dict[str, Any], told: str) -> None:
    with pytest.raises(DistsimError, match=told):
        read_config({**LLAMA, **config})


# Counted on modules as above, all defaults but these keys.
@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        ({"model_type": "deberta-v2", "hidden_size": 1536,
          "architectures": ["DebertaV2ForMultipleChoice"]}, 879_869_953),
        ({"model_type": "nemotron_h", "hidden_size": 4096}, 1_968_355_712),
        ({"model_type": "nemotron_h", "hidden_size": 4096, "use_bias": True}, 1_968_378_368),
        ({"model_type": "nemotron_h", "hidden_size": 4096, "use_conv_bias": False}, 1_968_345_472),
        ({"model_type": "afmoe", "hidden_size": 128, "num_hidden_layers": 4, "vocab_size": 1000,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256, "moe_intermediate_size": 64,
          "num_experts": 8, "head_dim": 32, "attention_bias": True}, 1_360_792),
        ({"model_type": "ernie4_5_moe", "hidden_size": 2560}, 21_825_437_888),
        ({"model_type": "ernie4_5_moe", "hidden_size": 1536, "num_attention_heads": 16, "num_hidden_layers": 6,
          "intermediate_size": 4096, "num_key_value_heads": 4, "moe_num_experts": 8, "moe_k": 2,
          "moe_intermediate_size": 512}, 331_169_320),
        ({"model_type": "glm4v_text", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 3,
          "vocab_size": 1000}, 66_110_208),
    ],
)  # fmt: skip
def test_keys_that_families_have_or_lack(config: dict[str, Any], parameters: int) -> None:
    """Biases that a key switches, and widths of heads that no key states: hidden size by heads."""
    reading = read_config(config)
    assert load_model(reading.model).parameters == parameters
    assert not reading.unused


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "glm_moe_dsa", "hidden_size": 6144, "indexer_types": [["full"]]}, "one of full and shared"),
        (
            {
                "model_type": "bert",
                "hidden_size": 768,
                "position_embedding_type": ["absolute"],
                "architectures": ["BertModel"],
            },
            "absolute or",
        ),
    ],
)
def test_lists_where_words_belong(config: dict[str, Any], told: str) -> None:
    with pytest.raises(DistsimError, match=told):
        read_config(config)
