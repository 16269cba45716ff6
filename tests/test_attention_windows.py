"""Sliding windows and chunks: which keys a causal kernel meets, block by block."""

from __future__ import annotations

import pytest

from distsim import Job, catalog
from distsim.engine.jobs.flops import least_flops
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.flash import flash_seconds
from distsim.errors import DistsimError
from distsim.formulas.compute import causal_fraction
from distsim.interop.huggingface.reader import read_config
from distsim.specs.model import Model


def core_seconds(model: Model, seq: int, cp: int = 1) -> float:
    setup = resolve(Job(model=model, gpu="h100-sxm", gpus=64, zero=1, seq=seq, cp=cp))
    block, _ = build_stages(setup)[0].usual_layer
    (core,) = [one for one in block.operations if one.name == "attention.core"]
    return float(flash_seconds(Chip(setup), core)[0])


@pytest.mark.parametrize("block", [128, 512, 2048])
@pytest.mark.parametrize("window", [2048, 4096, 8192])
@pytest.mark.parametrize("sequence", [8192, 16384, 65536])
def test_blocks_within_a_window_are_those_that_a_kernel_visits(sequence: int, window: int, block: int) -> None:
    """Queries in block i meet key blocks from the one that holds the window's far edge to their own."""
    visited = sum(row - max(row - window // block, 0) + 1 for row in range(sequence // block))
    assert causal_fraction(window, sequence, block) * sequence * window == pytest.approx(visited * block**2)


def test_attention_in_chunks_sees_half_a_chunk_whatever_the_length() -> None:
    """Llama 4's layers with rotary positions attend within chunks of 8,192 tokens (transformers 5.23,
    create_chunked_causal_mask); the same number of keys in a window would be met by nearly all queries."""
    scout = catalog.load("models", "llama-4-scout")
    every = scout.model_copy(update={"window_pattern": ()})
    window = every.model_copy(update={"window_chunks": False})

    assert core_seconds(every, 8192) == pytest.approx(core_seconds(window, 8192))
    assert core_seconds(every, 65536) == pytest.approx(8 * core_seconds(every, 8192), rel=0.02)
    assert core_seconds(window, 65536) > 1.7 * core_seconds(every, 65536)
    flops = [least_flops(resolve(Job(model=model, gpu="h100-sxm", gpus=64, seq=65536))) for model in (window, every)]
    keys = 6 * 2 * every.layers * every.heads * every.head_dim  # FLOPs of a token for each key that it meets
    assert flops[0] - flops[1] == pytest.approx(keys * (8192 - 8192**2 / (2 * 65536) - 4096))


def test_composed_attention_multiplies_all_keys_within_a_window_too() -> None:
    """A mask is added to scores that are there: torch counts as many products with a window as without one
    (FlopCounterMode on transformers 5.24's ModernBERT decoder, of whose layers every third has none)."""
    model = catalog.load("models", "gemma-2-2b")
    setup = resolve(Job(model=model, gpu="h100-sxm", framework="huggingface", seq=16384, attention="eager"))
    blocks = [block for block, _ in build_stages(setup)[0].layers]
    assert sorted(block.name for block in blocks) == ["dense", "dense+window"]
    whole, window = ([one for one in block.operations if one.kind == "attention"] for block in blocks)
    products = 2 * 16384**2 * model.heads * model.head_dim
    assert [one.flops_forward for one in whole] == [one.flops_forward for one in window] == [products] * 2


def test_context_parallel_ranks_share_what_a_window_lets_all_queries_see() -> None:
    """A rank's queries are fewer than the window's keys, of which the sequence's queries fill three quarters."""
    model = catalog.load("models", "mistral-7b").model_copy(update={"window": 4096})
    assert causal_fraction(4096, 8192, 128) == pytest.approx(0.75, abs=0.03)
    whole, ranks = core_seconds(model, 8192), [core_seconds(model, 8192, cp) for cp in (2, 4)]
    assert [cp * own for cp, own in zip((2, 4), ranks, strict=True)] == pytest.approx([whole] * 2, rel=0.08)


def test_chunks_need_a_length_and_a_file_may_have_none() -> None:
    scout = catalog.load("models", "llama-4-scout").model_dump(exclude={"source"})
    with pytest.raises(DistsimError, match="window_chunks needs a window"):
        Model.read({**scout, "window": None, "window_pattern": (), "windowed": None}, "here")
    text = {"model_type": "llama4_text", "num_hidden_layers": 4}
    for changes, window, chunks in (
        ({}, 8192, True), ({"use_qk_norm": False}, 8192, True), ({"attention_chunk_size": None}, None, False),
    ):  # fmt: skip
        model = read_config({**text, **changes}).model
        assert (model.window, model.window_chunks) == (window, chunks), changes
