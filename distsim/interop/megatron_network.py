"""The network that Megatron's arguments, or a YAML of NeMo or Megatron, state by its sizes. Names and defaults are
those of NVIDIA/Megatron-LM megatron/training/arguments.py and core/transformer/transformer_config.py, of NVIDIA/NeMo
megatron_gpt_config.yaml, and MindSpeed-LLM's for latent attention and experts (recalled)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from distsim.errors import DistsimError
from distsim.interop.layer_lists import layer_list
from distsim.interop.megatron_activation import activation_of
from distsim.interop.other_stated import Stated, last_of
from distsim.specs.model import Model

NEEDED = ("num_layers", "hidden_size", "num_attention_heads")
"""Sizes without which there is no network; all others have defaults."""
NEEDED_AS_TRANSFORMERS = ("num_hidden_layers", "hidden_size", "num_attention_heads")
"""The same in nanotron's YAML."""
ELSEWHERE = ("hybrid_override_pattern", "hybrid_layer_pattern", "hybrid_attention_ratio", "is_hybrid_model",
             "decoder_num_layers", "linear_attention_freq",
             "experimental_attention_variant", "use_checkpoint_args", "heterogeneous_layers_config_path",
             "window_size", "window_attn_skip_freq")  # fmt: skip
"""Keys of networks that these sizes alone do not describe."""
TOKENIZERS = {"gpt2bpetokenizer": 50_257, "llama2tokenizer": 32_000, "llama3tokenizer": 128_256,
              "megatron": 50_257}  # fmt: skip
"""Words of a tokenizer by its type: those of GPT-2, Llama 2 and Llama 3 (their config.json on the Hub, recalled)."""
MEGATRONS_YAML = "language_model"
"""Section of a YAML that Megatron's own programs read (--yaml-cfg, megatron/training/yaml_arguments.py, recalled)."""
DROPOUT = 0.1
"""Rate of either dropout where none is stated (arguments.py; megatron_gpt_config.yaml of NeMo)."""
_REFERENCE = re.compile(r"\$\{(?:[\w.]*\.)?(\w+)\}")
_PRODUCT = re.compile(r"\$\{multiply:\s*(\d+),\s*(\d+)\}")


class Network(NamedTuple):
    """A network and what of it the file does not say."""

    model: Model
    assumed: tuple[str, ...]
    used: frozenset[str]
    """Keys that were read, without sections and hyphens."""


class Sizes:
    """The keys of a file by their last part, with a record of those that were asked for."""

    def __init__(self, stated: Stated, where: str) -> None:
        self.where, self.arguments, self.whole_keys = where, stated.arguments, stated.keys
        self.keys: dict[str, Any] = {}
        self.named = {key: value for key, value in stated.keys.items() if _names_words(key) and isinstance(value, str)}
        for key, value in stated.keys.items():
            if value is not None and value not in ("null", "~", "None", ""):
                self.keys[last_of(key)] = value
        self.used: set[str] = set()
        self.assumed: list[str] = []

    def typed(self, name: str) -> str:
        """A key as the file spells it."""
        return f"--{name.replace('_', '-')}" if self.arguments else name

    def get(self, *names: str) -> Any:
        """The first of several keys that is stated, with references to other keys followed."""
        self.used |= set(names)
        value = next((self.keys[name] for name in names if name in self.keys), None)
        if not isinstance(value, str) or "${" not in value:
            return value
        value = _REFERENCE.sub(lambda one: f"{self.keys.get(one[1], one[0])}", value)
        value = _PRODUCT.sub(lambda one: f"{int(one[1]) * int(one[2])}", value)
        return int(value) if value.isdigit() else value

    def whole(self, *names: str) -> int | None:
        """A whole number; None where nothing is stated."""
        value = self.get(*names)
        if value is None or type(value) is int:
            return value
        typed = self.typed(next(name for name in names if name in self.keys))
        raise DistsimError(f"{typed} is {value!r}, and a whole number is needed",
                           "write the number where a script computes it or takes it from elsewhere",
                           where=self.where)  # fmt: skip

    def number(self, default: float, name: str) -> float:
        """A number, such as a rate of dropout."""
        value = self.get(name)
        try:
            return default if value is None else float(value)
        except (TypeError, ValueError):
            raise DistsimError(f"{self.typed(name)} is {value!r}, and a number is needed", where=self.where) from None

    def on(self, *names: str, default: bool = False) -> bool:
        """Whether a switch is on."""
        value = self.get(*names)
        return default if value is None else value is True or value == 1

    def assume(self, words: str) -> None:
        """Record what is taken though the file does not say it."""
        self.assumed.append(words)


def lacks(stated: Stated) -> list[str]:
    """What of a network's needed sizes a file does not state, as it would be spelt; all of them where it is about no
    network at all."""
    have = {last_of(key) for key, value in stated.keys.items() if value is not None}
    needed = NEEDED_AS_TRANSFORMERS if stated.framework == "nanotron" else NEEDED
    return [f"--{name.replace('_', '-')}" if stated.arguments else name for name in needed if name not in have]


def read_network(stated: Stated, path: Path) -> Network:
    """The network of a file that states the needed sizes."""
    sizes = Sizes(stated, str(path))
    other = next((key for key in ELSEWHERE if sizes.keys.get(key) not in (None, False, 0, "0.0")), None)
    if other is not None:
        raise DistsimError(f"{sizes.typed(other)} makes a network that its sizes alone do not describe",
                           "name the model, or describe it in a TOML (docs/models.md)", where=str(path))  # fmt: skip
    layers, hidden, heads = (sizes.whole(name) or 0 for name in NEEDED)
    gated, activation = activation_of(sizes)
    values: dict[str, Any] = {
        "name": path.stem, "layers": layers, "hidden": hidden, "heads": heads, "gated": gated,
        "activation": activation, "ffn": _ffn(sizes, hidden, gated), "vocab": _vocabulary(sizes),
        "source": {"other": f"{path}; what it leaves out as Megatron's defaults have it"},
    }  # fmt: skip
    values |= dict(_attention(sizes, hidden, heads))
    values |= dict(_norms_and_biases(sizes))
    values |= dict(_positions(sizes))
    values |= dict(_experts(sizes, layers, values["ffn"], values["mlp_bias"]))
    tied = sizes.on("share_embeddings_and_output_weights", default=True)
    values["tied_embeddings"] = tied and not sizes.on("untie_embeddings_and_output_weights")
    values["mtp_layers"] = sizes.whole("mtp_num_layers") or 0
    values["family"] = _family(values)
    return Network(Model.read(values, str(path)), tuple(sizes.assumed), frozenset(sizes.used))


def _family(values: Mapping[str, Any]) -> str:
    """The published family that is most like it, for software that goes by families."""
    if "latent_attention" in values:
        return "deepseek_v3"
    if "experts" in values:
        return "mixtral"
    return "llama" if values["positions"] == "rotary" else "gpt2"


def _ffn(sizes: Sizes, hidden: int, gated: bool) -> int:
    stated = sizes.whole("ffn_hidden_size")
    if stated is not None:
        return stated
    narrower = gated and (sizes.arguments or MEGATRONS_YAML in sizes.whole_keys)
    width = int(4 * hidden * 2 / 3) // 64 * 64 if narrower else 4 * hidden
    rule = "two thirds of 4 x hidden in steps of 64" if narrower else "4 x hidden"
    sizes.assume(f"{sizes.typed('ffn_hidden_size')} {width:,} ({rule})")
    return width


def _vocabulary(sizes: Sizes) -> int:
    """Words of the vocabulary before a framework pads it."""
    stated = sizes.whole("vocab_size", "override_vocab_size", "padded_vocab_size")
    if stated is not None:
        return stated
    if (found := _words_of(sizes)) is not None:
        name, words = found
        sizes.assume(f"{sizes.typed('vocab_size')} {words:,}, as {name} has")
        return words
    kind = f"{sizes.get('tokenizer_type', 'library') or ''}"
    words = TOKENIZERS.get(kind.lower(), TOKENIZERS["gpt2bpetokenizer"])
    whose = f"as {kind} has" if kind.lower() in TOKENIZERS else "as GPT-2 has"
    sizes.assume(f"{sizes.typed('vocab_size')} {words:,}, {whose}")
    return words


def _names_words(key: str) -> bool:
    """Whether a key names a tokenizer, as a model of the Hub does."""
    name = key.lower().lstrip("-").replace("-", "_")
    return name.endswith(("tokenizer.type", "tokenizer.model", "tokenizer_model", "tokenizer_name_or_path"))


def _words_of(sizes: Sizes) -> tuple[str, int] | None:
    """A known model whose tokenizer a file names, and its words; None where it names none that is known."""
    from distsim.interop.models import known_model

    for key, name in sizes.named.items():
        try:
            model = known_model(name)
        except (OSError, ValueError, DistsimError):
            continue
        if model is not None:
            sizes.used |= {key, "tokenizer_type", "library"}
            return model.name, model.vocab
    return None


def _attention(sizes: Sizes, hidden: int, heads: int) -> Iterator[tuple[str, Any]]:
    """Heads and their width, or the ranks of latent attention."""
    if sizes.on("multi_latent_attention", "multi_head_latent_attention"):
        nope = sizes.whole("qk_head_dim", "qk_nope_head_dim") or 128
        rope = sizes.whole("qk_pos_emb_head_dim", "qk_rope_head_dim") or 64
        latent = {"q_rank": sizes.whole("q_lora_rank") or 0, "kv_rank": sizes.whole("kv_lora_rank") or 32,
                  "nope_dim": nope, "rope_dim": rope, "value_dim": sizes.whole("v_head_dim") or 128}  # fmt: skip
        if not sizes.on("qk_layernorm"):
            sizes.assume(f"norms behind the narrow projections, though without {sizes.typed('qk_layernorm')}")
        sizes.get("kv_channels", "num_query_groups", "group_query_attention")
        yield from {"latent_attention": latent, "kv_heads": heads, "head_dim": nope + rope}.items()
        return
    groups, asked = sizes.whole("num_query_groups"), sizes.on("group_query_attention", default=not sizes.arguments)
    if groups and groups > 1 and not asked:
        sizes.assume(f"{heads} key-value heads: --num-query-groups has no effect without --group-query-attention")
    yield "kv_heads", (groups or (1 if sizes.arguments else heads)) if asked else heads
    yield "head_dim", sizes.whole("kv_channels") or hidden // max(heads, 1)
    yield "qk_norm", "head" if sizes.on("qk_layernorm") else "none"


def _norms_and_biases(sizes: Sizes) -> Iterator[tuple[str, Any]]:
    named = f"{sizes.get('normalization') or 'LayerNorm'}".lower()
    yield "norm", "rmsnorm" if "rms" in named else "layernorm"
    biases = sizes.on("bias", "add_bias_linear", default=True) and not sizes.on("disable_bias_linear")
    yield "qkv_bias", biases or sizes.on("add_qkv_bias", "qkv_bias")
    yield from dict.fromkeys(("attention_output_bias", "mlp_bias"), biases).items()
    for rate in ("attention_dropout", "hidden_dropout"):
        if sizes.get(rate) is None:
            sizes.assume(f"{sizes.typed(rate)} {DROPOUT}")
        yield rate, sizes.number(DROPOUT, rate)
    yield "embedding_dropout", sizes.number(DROPOUT, "hidden_dropout")


def _positions(sizes: Sizes) -> Iterator[tuple[str, Any]]:
    kind = f"{sizes.get('position_embedding_type') or 'learned_absolute'}".lower()
    rotates = sizes.on("use_rotary_position_embeddings") or kind in ("rope", "yarn", "mrope")
    found = "rotary" if rotates else {"learned_absolute": "learned", "learned": "learned"}.get(kind, kind)
    length = sizes.whole("max_position_embeddings") or sizes.whole("seq_length", "encoder_seq_length")
    if length is None:
        length = 2048
        sizes.assume(f"{sizes.typed('max_position_embeddings')} {length:,}")
    if found == "learned" and sizes.get("position_embedding_type") is None:
        sizes.assume(f"a table of {length:,} learned positions (no {sizes.typed('position_embedding_type')})")
    yield from {"positions": found, "context": length}.items()
    if found == "learned":
        yield "position_rows", length
    if found == "rotary":
        share = "rotary_percent" if "rotary_percent" in sizes.keys else "rotary_percentage"
        yield "rotary_fraction", sizes.number(1.0, share)


def _experts(sizes: Sizes, layers: int, ffn: int, biases: bool) -> Iterator[tuple[str, Any]]:
    count = sizes.whole("num_experts", "num_moe_experts")
    if not count:
        return
    width = sizes.whole("moe_ffn_hidden_size", "moe_intermediate_size") or ffn
    chosen = sizes.whole("moe_router_topk")
    if chosen is None:
        chosen = 2
        sizes.assume(f"{sizes.typed('moe_router_topk')} 2")
    shared = sizes.whole("moe_shared_expert_intermediate_size")
    shared = shared or (sizes.whole("n_shared_experts") or 0) * width
    first, every = sizes.whole("first_k_dense_replace"), sizes.get("moe_layer_freq")
    if every is None or type(every) is int:
        dense = [layer for layer in range(layers) if layer < (first or 0) or layer % (every or 1)]
    else:
        sparse = layer_list(f"{every}", layers, f"{sizes.typed('moe_layer_freq')} {every}", sizes.where)
        dense = [layer for layer, one in enumerate(sparse) if not one]
    values: dict[str, Any] = {"count": count, "per_token": chosen, "ffn": width, "bias": biases,
                              "dense_layers": tuple(dense), "latent": sizes.whole("moe_latent_size")}  # fmt: skip
    if shared:
        values |= {"shared": 1, "shared_ffn": shared, "shared_gate": sizes.on("moe_shared_expert_gate")}
    groups = sizes.whole("moe_router_num_groups")
    if groups:
        values |= {"groups": groups, "groups_per_token": sizes.whole("moe_router_group_topk") or 1}
    yield "experts", values
