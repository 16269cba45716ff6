"""Qwen4-Exp in a configuration: gated residual streams, an indexer of blocks by the mean of their keys, n-grams."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from distsim.arrays import round_up
from distsim.errors import DistsimError
from distsim.interop.huggingface.fields import Fields

Values = dict[str, Any]
GATES = ("sigmoid", "silu")
KINDS = ("linear_attention", "indexed_attention", "full_attention")
"""Of layers; published files call those with an indexer full."""
INDEXER = ("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio")
NGRAMS = ("ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base",
          "make_ngram_vocab_size_divisible_by")  # fmt: skip
PLAIN = ("seed", "split_ngram_parts", "number_of_conv_states", "mamba_ssm_dtype", "mtp_use_dedicated_embeddings",
         "attn_output_gate")  # fmt: skip
"""Keys that change neither shapes nor work: hashes, how files are cut, what a cache holds; the gate is always there."""
MOST_ROWS = 1_000_000_000
"""Rows of one lookup above which no prime is looked for: fifty times those of the published table."""


def qwen4_exp(fields: Fields, values: Values) -> Values:
    """What Qwen3.5 has not."""
    layers = values["layers"]
    pattern = values.get("recurrent", (False,))
    recurrent = [pattern[layer % len(pattern)] for layer in range(layers)]
    fields.settled(*PLAIN, *(name for name in fields.unused() if name.startswith("mtp.")))
    if others := [kind for kind in fields.row("layer_types") or [] if kind not in KINDS]:
        raise fields.wrong("layer_types", others[0], f"kinds: {', '.join(KINDS)}")
    if (count := fields.needed("hc_count")) < 2:
        raise fields.wrong("hc_count", count, "expected 2 or more")
    gate = fields.text("output_gate_type", default=values["activation"])
    if gate not in GATES:
        raise fields.wrong("output_gate_type", gate, f"expected one of: {', '.join(GATES)}")
    found: Values = {"residual_streams": count, "stream_rank": fields.needed("hc_lowrank")}
    if "delta" in values:
        found["delta"] = {**values["delta"], "sigmoid_gate": gate == "sigmoid"}
    if all(recurrent):
        fields.settled(*INDEXER)
    else:
        found["block_indexer"] = _indexer(fields, int(values["head_dim"] * values["rotary_fraction"]))
    if tables := _tables(fields, recurrent):
        found["ngrams"] = tables
    else:
        fields.settled(*NGRAMS)
    return found


def _indexer(fields: Fields, rotated: int) -> Values:
    """Every layer that attends has an indexer, which rotates as much of its heads; without its widths there is no such
    layer to build."""
    heads, keys, width, budget, joined = (fields.whole(name) for name in INDEXER)
    if heads is None or width is None or budget is None or joined is None or keys is None:
        missing = next(name for name in INDEXER if fields.find(name)[1] is None)
        hint = "layers that attend choose their keys by an indexer: state its five keys, as the published files do"
        raise DistsimError(f"key {missing!r} is missing", hint, where=fields.where)
    if keys != 1:
        raise fields.wrong("indexer_kv_heads", keys, "expected 1")
    if width < rotated:
        raise fields.wrong("indexer_head_dim", width, f"expected {rotated} or more, as many as attention rotates")
    if budget % joined:
        raise fields.wrong("indexer_budget", budget, f"expected a multiple of indexer_compress_ratio {joined}")
    return {"heads": heads, "dim": width, "block": joined, "blocks": budget // joined, "pooled": True}


def _tables(fields: Fields, recurrent: list[bool]) -> Values:
    """Tables of n-grams; a layer's number in the file counts from one. Empty where there is none."""
    name = "ple_layer_ids"
    stated = fields.row(name) or []
    layers = sorted({fields.as_whole(name, one, 1, len(recurrent)) - 1 for one in stated})
    if not layers:
        return {}
    for layer in layers:
        if not recurrent[layer]:
            raise fields.wrong(name, layer + 1, "expected layers of linear attention, counted from one")
    size, heads = fields.needed("ngram_size"), fields.needed("heads_per_ngram")
    lookups = (size - 1) * heads
    width = fields.whole("ple_embed_dim") or fields.needed("hidden_size")
    if not lookups or width % lookups:
        raise fields.wrong("ple_embed_dim", width, f"expected a multiple of {lookups} lookups for each token")
    base = fields.needed("ngram_vocab_size_base", most=MOST_ROWS)
    whole = fields.needed("make_ngram_vocab_size_divisible_by")
    primes = _primes(base)
    return {
        "layers": tuple(layers),
        "rows": tuple(int(round_up(sum(next(primes) for _ in range(lookups)), whole)) for _ in layers),
        "width": width, "lookups": lookups, "taps": fields.needed("ple_conv_kernel_size"), "spacing": size,
    }  # fmt: skip


def _primes(least: int) -> Iterator[int]:
    """Primes from ``least`` on, in rising order: each lookup of each table has a part of as many rows as the next one
    (transformers 5.24 models/qwen4_exp, Qwen4ExpTextNGramEmbedding)."""
    number = least
    while True:
        if number > 1 and all(number % one for one in range(2, math.isqrt(number) + 1)):
            yield number
        number += 1
