"""``params.json`` as Meta writes it for Llama and Mistral for its own, as keys of a config.json with what their code
makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from distsim.arrays import round_up
from distsim.errors import DistsimError
from distsim.interop.huggingface.fields import Fields

FILE = "params.json"
"""Its name in Meta's downloads and under ``original/`` on the Hub."""
MARKS = ("dim", "n_layers", "n_heads", "multiple_of")
"""Keys that every such file has, and configurations of transformers' classes have not together."""
MISTRAL_MARKS = ("dim", "n_layers", "n_heads", "hidden_dim")
"""Keys that every file of Mistral's has (mistralai/mistral-inference, args.py, TransformerArgs)."""
MISTRAL_KEYS = {"dim": "hidden_size", "hidden_dim": "intermediate_size", "tied_embeddings": "tie_word_embeddings"}
"""What configurations of transformers' classes call them; other keys are read under their own names."""
MISTRAL_EXPERTS = ("num_experts", "num_experts_per_tok")
"""Keys of its mixtures that are read."""
OTHER_LAYERS = {
    "moe_args": "experts",
    "vision_num_cross_attention_layers": "layers that attend to images",
}
"""Keys of Llama 4 and of Llama 3.2 Vision, and what they say."""
CONTEXT = 2048
"""Tokens of a sequence that no such file states (meta-llama/llama and llama3, ModelArgs.max_seq_len)."""


class Translated(NamedTuple):
    """A configuration and what was derived for it."""

    data: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def from_meta(data: Mapping[str, Any], where: str) -> Translated:
    """A ``params.json`` as a configuration; anything else as it is."""
    if data.get("model_type") in (None, "llama", "mistral") and "multiple_of" not in data:
        return _from_mistral(data, where) if all(key in data for key in MISTRAL_MARKS) else Translated(data)
    if data.get("model_type") not in (None, "llama") or any(key not in data for key in MARKS):
        return Translated(data)
    for key, what in OTHER_LAYERS.items():
        if data.get(key):
            hint = "give the model's config.json from the Hugging Face Hub"
            raise DistsimError(f"{key}: {what} in Meta's {FILE} are not supported", hint, where=where)
    fields = Fields(data, {}, where)
    width, told = _width(fields)
    found = {key: value for key, value in data.items() if key not in ("multiple_of", "ffn_dim_multiplier")}
    found |= {"model_type": "llama", "intermediate_size": data.get("intermediate_size", width)}
    notes = [told] if "intermediate_size" not in data else []
    if data.get("vocab_size") == -1:  # Llama 1 and 2: as many as the tokenizer has
        del found["vocab_size"]
    if not {"max_position_embeddings", "max_seq_len"} & data.keys():
        found["max_position_embeddings"] = CONTEXT
        notes.append(
            f"no sequence length is given: using {CONTEXT:,}, the default of Meta's code, unless --seq is given"
        )
    if "tie_word_embeddings" not in data:
        notes.append('input and output embeddings are assumed untied; "tie_word_embeddings": true ties them')
    return Translated(found, tuple(notes))


def _from_mistral(data: Mapping[str, Any], where: str) -> Translated:
    """One of Mistral's, which states all widths; a window that it leaves out is none."""
    experts = data.get("moe") or {}
    if "kv_lora_rank" in data or not isinstance(experts, Mapping) or set(experts) - set(MISTRAL_EXPERTS):
        hint = "give the model's config.json from the Hugging Face Hub"
        raise DistsimError(
            f"latent attention and experts of other widths in {FILE} are not supported", hint, where=where
        )
    read = {key: value for key, value in data.items() if key not in ("moe", "vision_encoder")}
    found = {MISTRAL_KEYS.get(key, key): value for key, value in read.items()}
    found |= {"model_type": "mixtral" if experts else data.get("model_type", "mistral"), **experts}
    found.setdefault("sliding_window", None)
    notes = ["only the text decoder is read, without vision_encoder"] if "vision_encoder" in data else []
    return Translated(found, tuple(notes))


def _width(fields: Fields) -> tuple[int, str]:
    """Inner width of the MLP (meta-llama/llama3, llama/model.py, FeedForward): two thirds of four times the layers',
    times a factor, up to a multiple; and how it was derived."""
    dim, multiple = fields.needed("dim"), fields.needed("multiple_of")
    factor = fields.find("ffn_dim_multiplier")[1]
    width = int(2 * (4 * dim) / 3)
    by = f"dim {dim:,} and multiple_of {multiple:,}"
    if factor is not None:
        factor = fields.number("ffn_dim_multiplier", default=1.0, least=0.01, most=100.0)
        width = int(factor * width)
        by = f"dim {dim:,}, ffn_dim_multiplier {factor:g} and multiple_of {multiple:,}"
    width = int(round_up(width, multiple))
    return width, f"intermediate_size {width:,} follows from {by}"
