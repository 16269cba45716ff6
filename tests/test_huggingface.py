"""Hugging Face configurations: exact counts against instantiated modules, omitted keys, refusals, and rubbish."""

import copy
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distsim.engine.jobs.models import LoadedModel, load_model
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config, read_config_file
from distsim.interop.huggingface.families import load_family, supported
from distsim.interop.huggingface.refused import REFUSED
from distsim.specs.model import Model

# Configurations dumped by transformers 5.23 with the parameters counted on the instantiated (meta) modules.
ORACLE = json.loads(gzip.decompress((Path(__file__).parent / "oracles" / "hf_configs.json.gz").read_bytes()))
OUTSIDE = {name for name, entry in ORACLE.items() if entry["config"]["model_type"] in REFUSED}
DECODERS = sorted(set(ORACLE) - OUTSIDE)


def count(config):
    return LoadedModel(read_config(config).model).parameters


def test_oracle_is_large():
    assert len(DECODERS) > 300
    assert len({ORACLE[name]["config"]["model_type"] for name in DECODERS}) > 60


@pytest.mark.parametrize("name", DECODERS)
def test_exact_count(name):
    config = ORACLE[name]["config"]
    labels = {"num_labels": 1000} if config["model_type"] == "vit" else {}  # whose table the oracle leaves out
    assert count({**config, **labels}) == ORACLE[name]["total"]


@pytest.mark.parametrize("name", sorted(OUTSIDE))
def test_refuses_what_is_no_decoder(name):
    with pytest.raises(DistsimError, match="is not supported") as caught:
        read_config(ORACLE[name]["config"], where=f"{name}.json")
    assert ORACLE[name]["config"]["model_type"] in str(caught.value)
    assert "families are supported: distsim show families" in str(caught.value)


# Configurations as they are on the Hub: written by older versions, many keys left out. Published or well-known totals.
HUB = {
    "gpt2, 2019": (
        {"architectures": ["GPT2LMHeadModel"], "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
         "n_positions": 1024, "vocab_size": 50257}, 124439808),
    "llama-7b": ({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
                  "num_hidden_layers": 32, "vocab_size": 32000, "torch_dtype": "float16"}, 6738415616),
    "mistral": ({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32}, 7241732096),
    "falcon-7b": ({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
                   "bias": False, "multi_query": True, "parallel_attn": True, "vocab_size": 65024}, 6921720704),
    "falcon-7b, two norms": ({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
                              "num_attention_heads": 71, "bias": False, "num_ln_in_parallel_attn": 2,
                              "vocab_size": 65024}, 6921720704 + 32 * 2 * 4544),
    "falcon-40b, old names": (
        {"model_type": "falcon", "hidden_size": 8192, "n_layer": 60, "n_head": 128, "n_head_kv": 8, "bias": False,
         "new_decoder_architecture": True, "vocab_size": 65024}, 41303293952),
    "falcon-rw-1b": ({"model_type": "falcon", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
                      "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False,
                      "vocab_size": 50304}, 1311625216),
    "mpt-7b": ({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "no_bias": True,
                "vocab_size": 50432, "attn_config": {"alibi": True}}, 6649286656),
    "bloom-560m": ({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16,
                    "vocab_size": 250880}, 559214592),
    "gemma-2b": ({"model_type": "gemma", "head_dim": 256, "hidden_size": 2048, "intermediate_size": 16384,
                  "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "vocab_size": 256000},
                 2506172416),
    "qwen1-7b": ({"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "kv_channels": 128,
                  "num_attention_heads": 32, "num_hidden_layers": 32, "no_bias": True, "seq_length": 8192,
                  "vocab_size": 151936}, 7721324544),
    "chatglm2-6b": (
        {"model_type": "chatglm", "add_bias_linear": False, "add_qkv_bias": True, "ffn_hidden_size": 13696,
         "hidden_size": 4096, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
         "num_attention_heads": 32, "num_layers": 28, "padded_vocab_size": 65024, "seq_length": 32768}, 6243584000),
    "chatglm-6b": ({"model_type": "chatglm", "hidden_size": 4096, "inner_hidden_size": 16384, "num_layers": 28,
                    "num_attention_heads": 32, "max_sequence_length": 2048, "vocab_size": 130528}, 6173286400),
    "internlm-7b": ({"model_type": "internlm", "bias": True, "hidden_size": 4096, "intermediate_size": 11008,
                     "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 103168}, 7321948160),
    "baichuan-7b": ({"model_type": "baichuan", "hidden_size": 4096, "intermediate_size": 11008,
                     "num_attention_heads": 32, "num_hidden_layers": 32, "max_position_embeddings": 4096,
                     "vocab_size": 64000}, 7000559616),
    "dbrx": ({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
              "attn_config": {"kv_n_heads": 8}, "max_seq_len": 32768,
              "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}, 131596523520),
    "deepseek-moe-16b": (
        {"model_type": "deepseek", "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 10944,
         "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2,
         "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 28, "vocab_size": 102400},
        16375728128),
    "llama 4 scout, wrapped": (
        {"model_type": "llama4", "vision_config": {"hidden_size": 1408},
         "text_config": {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
                         "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 1, "num_attention_heads": 40,
                         "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16,
                         "num_experts_per_tok": 1, "vocab_size": 202048}}, 107769861120),
    "gemma 3 4b, wrapped": (
        {"model_type": "gemma3", "vision_config": {"hidden_size": 1152},
         "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}}, 3880263168),
    "llava 1.5 7b, sizes left out": (
        {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}}, 6738939904),
    "llava 1.5 7b, family left out": ({"model_type": "llava", "text_config": {"vocab_size": 32064}}, 6738939904),
    "falcon-40b, old type": ({"model_type": "RefinedWeb", "hidden_size": 8192, "n_layer": 60, "n_head": 128,
                              "n_head_kv": 8, "bias": False, "vocab_size": 65024}, 41303293952),
}  # fmt: skip


@pytest.mark.parametrize("name", HUB)
def test_configuration_with_keys_left_out(name):
    config, total = HUB[name]
    assert count(config) == total


@pytest.mark.parametrize("name", sorted(n for n in DECODERS if n.endswith("with 7 layers")))
def test_defaults_stand_in_for_keys_left_out(name):
    """What a family's table defaults may be left out of a file without a change in the model."""
    config = ORACLE[name]["config"]
    defaults = load_family(config["model_type"]).keys
    sizes = {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "hidden_size", "n_embd", "d_model"}
    short = {k: v for k, v in config.items() if k in sizes or k not in defaults or defaults[k] != v}
    full = read_config(config).model.model_dump(exclude={"source"})
    assert read_config(short).model.model_dump(exclude={"source"}) == full


def test_layers_attend_where_no_key_says_which_do():
    """LFM2 takes all of its layers for attention then (Lfm2Config.__post_init__)."""
    config = {"model_type": "lfm2", "num_hidden_layers": 8, "hidden_size": 2560}
    assert count(config) == 802_205_440 and not read_config(config).model.recurrent
    assert read_config({**config, "full_attn_idxs": [2, 5]}).model.recurrent


def test_aria_has_narrower_mlps_than_llama():
    """AriaTextConfig.intermediate_size; the count is transformers 5.24's on the meta device."""
    assert count({"model_type": "aria_text", "num_hidden_layers": 2}) == 1_403_080_704


def test_null_is_not_absent():
    base = {"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 2}
    assert read_config(base).model.window == 4096
    assert read_config({**base, "sliding_window": None}).model.window is None
    assert read_config(base).model.kv_heads == 8
    assert read_config({**base, "num_key_value_heads": None}).model.kv_heads == 32


def test_windows():
    gemma = read_config({"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 13}).model
    assert [layer for layer in range(13) if not gemma.is_windowed(layer)] == [5, 11]
    neo = {"model_type": "gpt_neo", "hidden_size": 64, "num_layers": 4, "num_heads": 4}
    neo = read_config({**neo, "attention_types": [[["global", "local"], 2]]}).model
    assert [neo.is_windowed(layer) for layer in range(4)] == [False, True, False, True] and neo.window == 256
    qwen = {"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
    assert read_config({**qwen, "sliding_window": 32}).model.window is None
    late = read_config({**qwen, "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 3}).model
    assert [late.is_windowed(layer) for layer in range(4)] == [False, False, False, True]


def test_rules_by_period_and_offset():
    """Kinds of layers that sum to the same parameters wherever they stand, so that no count tells them."""
    deepseek = {"model_type": "deepseek_v2", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4,
                "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "kv_lora_rank": 16,
                "first_k_dense_replace": 1, "moe_layer_freq": 2, "no_rope_layer_interval": 3}  # fmt: skip
    model = read_config(deepseek).model
    assert model.experts.dense_layers == (0, 1, 3, 5)
    assert model.latent_attention.unrotated_layers == (False, False, True)
    jamba = {"model_type": "jamba", "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4}
    assert read_config(jamba).model.experts.dense_layers == (0, 2, 4, 6)
    hybrid = {"model_type": "olmo_hybrid", "hidden_size": 3840, "num_hidden_layers": 8, "num_attention_heads": 30}
    delta = read_config(hybrid).model.delta  # three quarters of a head of attention, and twice that
    assert (delta.key_dim, delta.value_dim) == (96, 192)


def test_dropouts_and_positions():
    gpt2 = read_config({"model_type": "gpt2", "n_embd": 768, "n_layer": 2}).model
    assert (gpt2.attention_dropout, gpt2.hidden_dropout, gpt2.embedding_dropout) == (0.1, 0.1, 0.1)
    opt = read_config({"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 2}).model
    assert (opt.positions, opt.position_rows) == ("learned", 2050)
    assert read_config({"model_type": "gptj", "n_embd": 4096, "n_layer": 1}).model.rotary_fraction == 0.25


def test_unused_keys_are_told():
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "memory_of_elephants": 7, "use_cache": True, "rope_theta": 1e6, "off": False}  # fmt: skip
    reading = read_config(config)
    assert reading.unused == ("memory_of_elephants",)
    assert reading.assumed["vocab_size"] == 32000 and "hidden_size" not in reading.assumed


def test_every_family_reads_its_own_defaults():
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
             "vocab_size": 100, "intermediate_size": 32, "max_position_embeddings": 16, "head_dim": 16}  # fmt: skip
    widths = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8,
              "indexer_compress_ratio": 4}  # fmt: skip
    for (
        name
    ) in supported():  # transformers builds no Qwen4-Exp without the widths of its indexer, which default to none
        model = read_config({"model_type": name, **sizes, **(widths if name.startswith("qwen4_exp") else {})}).model
        assert isinstance(model, Model) and LoadedModel(model).parameters > 0, name
        assert load_family(name).source, name


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hidden_size": -5}, "hidden_size is -5"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"num_hidden_layers": 1e30}, "num_hidden_layers is 1e+30"),
        ({"num_hidden_layers": 10**400}, "num_hidden_layers is 1000"),
        ({"num_hidden_layers": float("nan")}, "num_hidden_layers is nan"),
        ({"num_attention_heads": 2.5}, "num_attention_heads is 2.5"),
        ({"num_key_value_heads": 3}, "kv_heads 3 does not divide heads 4"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
        ({"num_attention_heads": 128, "num_key_value_heads": None}, "128 heads do not fit"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "not attention"),
        (
            {"layer_types": ["full_attention"]},
            "layer_types is a list of 1; expected one entry for each of the 2 layers\n  write 2 entries, or leave",
        ),
        ({"model_type": "lama"}, "did you mean llama"),
        ({"model_type": "../llama"}, "is not supported"),
        ({"model_type": 7, "architectures": None}, "model_type 7 is not a string"),
        ({"model_type": None, "architectures": None}, "names no model_type"),
        ({"hidden_size": None, "num_hidden_layers": None}, "is missing"),
    ],
)
def test_mistakes_are_named(change, told):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 4, **change}  # fmt: skip
    with pytest.raises(DistsimError) as caught:
        read_config(config, where="here/config.json")
    assert told in str(caught.value) and str(caught.value).startswith("here/config.json")


def test_other_json_is_told_apart():
    with pytest.raises(DistsimError, match="neither a hidden size nor"):
        read_config({"model_type": "llama", "rope_theta": 1.0})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n "model_type": "llama",\n "hidden_size": 4096,,\n}', ":3: not valid JSON"),
        ("[1, 2]", "holds a list; one JSON object"),
        ("null", "holds null; one JSON object"),
        ("3", "holds a number; one JSON object"),
        ('"llama"', "holds a string; one JSON object"),
        ("", "is empty; one JSON object"),
        ("[" * 100_000, "JSON"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "JSON"),
    ],
)
def test_broken_files(tmp_path, text, told):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DistsimError) as caught:
        load_model(str(tmp_path / "config.json"))
    assert told in str(caught.value) and "config.json" in str(caught.value)


def test_file_and_folder(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    with pytest.raises(DistsimError, match=r"no config\.json"):
        load_model(str(folder))
    (folder / "config.json").write_text(json.dumps(HUB["llama-7b"][0]))
    assert load_model(str(folder)).parameters == load_model(str(folder / "config.json")).parameters == 6738415616
    assert read_config_file(folder / "config.json").model.name == "my-model"
    (folder / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DistsimError, match="is not text"):
        load_model(str(folder))


_odd = st.one_of(
    st.none(), st.booleans(), st.integers(-10, 10**12), st.floats(), st.text(max_size=5),
    st.lists(st.integers(-3, 300), max_size=4), st.lists(st.text(max_size=3), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2), st.lists(st.lists(st.integers()), max_size=3),
)  # fmt: skip
_small = [n for n in DECODERS if n.endswith("with 7 layers")]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_rubbish_is_a_distsim_error_or_a_model(data):
    config = copy.deepcopy(ORACLE[data.draw(st.sampled_from(_small))]["config"])
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=4)):
        config[key] = data.draw(_odd)
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        config.pop(key, None)
    try:
        reading = read_config(config)
    except DistsimError as error:
        assert str(error)
    else:
        assert LoadedModel(reading.model).parameters > 0


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["model_type", "text_config", "architectures", "hidden_size", "x"]), _odd))
def test_any_object_is_a_distsim_error_or_a_model(config):
    try:
        read_config(config)
    except DistsimError as error:
        assert str(error)


def test_folder_named_without_a_slash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my-model"
    folder.mkdir()
    with pytest.raises(DistsimError, match=r"holds no config\.json"):
        load_model("my-model")
    (folder / "config.json").write_text(json.dumps(HUB["llama-7b"][0]))
    assert load_model("my-model").parameters == 6738415616
    folder.rename(tmp_path / "gpt2")  # a preset's name stays the preset's
    assert load_model("gpt2").parameters < 200e6


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("LlamaForCausalLM", ""),
        ("LlamaForSequenceClassification", "LlamaForSequenceClassification"),
        ("LlamaModel", "LlamaModel"),
        ("GPT2LMHeadModel", ""),
    ],
)
def test_classes_without_logits_are_told(named: str, told: str) -> None:
    """A reward model's vocabulary is counted, which its user hears of."""
    config = {"model_type": "llama", "architectures": [named], "hidden_size": 4096, "num_hidden_layers": 2,
              "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000}  # fmt: skip
    assert read_config(config).other_output == told
