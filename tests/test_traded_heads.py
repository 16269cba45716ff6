"""What context parallel ranks keep where they trade heads for tokens (Ulysses)."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.layers.ledger import Operation
from distsim.specs.job import Job

SEQ = 131072


def _setup(model: str = "llama-3-8b", framework: str = "deepspeed", **options: Any) -> Setup:
    usual = {"gpu": "h100-sxm", "gpus": 64, "seq": SEQ, "cp_mode": "all_to_all", "zero": 3}
    return resolve(Job(**{"model": model, "framework": framework, **usual, **options}))


def _layers(setup: Setup) -> list[dict[str, Operation]]:
    return [{one.name: one for one in block.operations} for block, _ in build_stages(setup)[0].layers]


@pytest.mark.parametrize(
    ("model", "framework", "tp", "cp", "heads"),
    [
        ("llama-3-8b", "deepspeed", 1, 4, 2), ("llama-3-8b", "deepspeed", 1, 32, 1),
        ("llama-3-8b", "deepspeed", 2, 16, 1), ("llama-3-8b", "deepspeed", 16, 2, 1), ("falcon-rw-7b", "fsdp", 1, 8, 8),
        ("gemma-2b", "deepspeed", 1, 8, 1), ("llama-2-7b", "megatron-core", 2, 8, 2),
        ("deepseek-v2-lite", "megatron-core", 1, 8, 2), ("deepseek-v3.2", "megatron-core", 1, 8, 1),
    ],
)  # fmt: skip
def test_ranks_keep_what_they_are_sent(model: str, framework: str, tp: int, cp: int, heads: int) -> None:
    """Keys and values of ``heads`` for all tokens: of fewer heads than ranks each has a copy, sent and kept."""
    setup = _setup(model, framework, tp=tp, cp=cp)
    latent = setup.model.latent_attention
    width = setup.model.head_dim if latent is None else latent.width
    if latent and latent.index_heads:
        width = latent.kv_rank + latent.rope_dim
    for rows in _layers(setup):
        sent = [one.bytes_logical for one in rows["attention.exchange"].collectives if one.phase == "forward"]
        kept = [one.size_bytes for one in rows["attention.heads"].saved]
        assert kept[1:] == sent[1:3]
        assert kept[1] == SEQ * heads * width * 2


@pytest.mark.parametrize(("model", "cp"), [("mamba2-2.7b", 8), ("mamba2-2.7b", 2), ("nemotron-h-8b", 4)])
def test_scans_keep_copies_of_groups_too(model: str, cp: int) -> None:
    """What Mamba-2's fused kernel keeps are its inputs as they were traded: gate, x, B, C and step widths."""
    rows = next(
        rows for rows in _layers(_setup(model, "megatron-core", cp=cp, cp_mode=None, zero=1)) if "mamba.scan" in rows
    )
    scan = rows["mamba.scan"]
    brought = sum(one.bytes_logical for one in scan.collectives[:5])
    assert {one.phase for one in scan.collectives[:6]} == {"forward"}
    assert scan.saved[0].size_bytes == brought
    convolved = next(one.size_bytes for one in scan.transient_backward if one.name == "mamba.convolved")
    assert convolved == sum(one.bytes_logical for one in scan.collectives[1:4])
    (states,) = scan.transient_forward  # of its chunks, in fp32 and narrowed
    assert scan.bytes_read == brought + 2 * convolved + 2 * states.elements * 4


def test_ranks_without_attention_trade_heads_of_scans() -> None:
    """Mamba-2's 80 heads, not the single one that a model without attention states for its keys."""
    job = {"model": "mamba2-2.7b", "gpu": "h100-sxm", "framework": "megatron-core", "cp_mode": "all_to_all"}
    rows = [one for one in distsim.comm(**job, gpus=8, cp=8).collectives if one.group == "cp"]
    assert {one.op for one in rows} == {"all_to_all"}
    with pytest.raises(DistsimError, match="32 context parallel ranks does not divide 80 heads"):
        distsim.comm(**job, gpus=32, cp=32)


def test_kernels_pad_the_part_of_heads_that_a_rank_has() -> None:
    """Sparse kernels take 16 heads at least: of DeepSeek-V3.2's 128, 16 ranks that trade them have 8 for all tokens."""
    flops = [
        _layers(_setup("deepseek-v3.2", "megatron-core", cp=16, cp_mode=mode, ep=4))[0]["attention.core"].flops_forward
        for mode in ("all_to_all", "all_gather")
    ]
    assert flops[0] == 2 * flops[1]


def test_scores_and_weighted_sums_are_products_over_their_own_widths() -> None:
    """Latent attention multiplies queries and keys over 192 elements, and sums values of 128."""
    rows = _layers(_setup("deepseek-v2-lite", "megatron-core", gpus=1, attention="eager", cp_mode=None, zero=0))[0]
    pairs = 16 * SEQ * SEQ
    for name, width in (("attention.scores", 192), ("attention.weighted_sum", 128)):
        assert (rows[name].flops_forward, rows[name].flops_backward) == (2 * pairs * width, 4 * pairs * width)


def test_copies_count_in_memory() -> None:
    """Llama 3's 8 heads of keys over 32 ranks: three further copies of keys and values in each of 32 layers, beside
    what torch's ring keeps, whose results are put together in a tensor of their own too."""
    job = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 32, "seq": SEQ, "framework": "deepspeed", "zero": 3}
    ring, traded = (distsim.memory(**job, cp=32, recompute="none", cp_mode=mode) for mode in ("ring", "all_to_all"))
    copies = 3 * 2 * 8 * 128 * SEQ // 32 * 2
    assert traded.worst.saved.per_layer - ring.worst.saved.per_layer == copies
    assert traded.peak - ring.peak >= 32 * copies


def test_transformer_engine_trades_the_output_once_more_instead_of_keeping_it() -> None:
    """AttnFuncWithCPAndQKVOA2A saves what its all-to-all gave, which the projection reads too, and trades it beside its
    gradient; autograd keeps both the kernel's output and the projection's input."""
    for framework, again in (("megatron-core", True), ("nemo-automodel", True), ("deepspeed", False)):
        setup = _setup(framework=framework, cp=8, zero=None)
        rows = _layers(setup)[0]
        back = [one.bytes_logical for one in rows["attention.exchange"].collectives if one.phase == "backward"]
        kept = {one.name: one.size_bytes for row in rows.values() for one in row.saved if ".output" in one.name}
        size = SEQ / 8 * 4096 * 2
        assert back == [size, size / 4, size / 4, size] + [size] * again
        assert kept == {"attention.output": size} | ({} if again else {"attention.output_copy": size})
    composed = _layers(_setup(cp=8, attention="eager"))[0]
    assert [one.name for one in composed["attention.projection"].saved] == ["attention.output"]


@pytest.mark.parametrize(
    ("framework", "tp", "cp", "alike"),
    [(None, 1, 8, True), (None, 1, 16, False), (None, 2, 8, False), ("megatron-core", 1, 8, True),
     ("fsdp", 1, 8, False)],
)  # fmt: skip
def test_modes_are_said_to_take_the_same_memory_where_they_do(
    framework: str | None, tp: int, cp: int, alike: bool
) -> None:
    """Eight heads of keys, which more ranks than that would copy."""
    job = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 16, "tp": tp, "cp": cp, "seq": SEQ}
    named = {"framework": framework} if framework else {}
    ring, traded = (distsim.memory(**job, **named, cp_mode=mode) for mode in ("ring", "all_to_all"))
    assert (ring.worst.saved.per_layer == traded.worst.saved.per_layer) == alike
    for report in (ring, traded):
        assert any("ring and all_to_all take the same memory" in note for note in report.setup.notes) == alike


@pytest.mark.parametrize(("tp", "cp", "share"), [(1, 1, 4), (2, 4, 4), (16, 1, 2), (1, 32, 0), (1, 16, 2)])
def test_gradients_of_keys_are_made_for_the_heads_that_share_one_on_a_rank(tp: int, cp: int, share: int) -> None:
    """Eight heads of keys for 32 of queries: of more than eight ranks each has a copy, which fewer heads read."""
    mode = {"cp_mode": "all_to_all" if cp > 1 else None, "zero": None}
    core = _layers(_setup(tp=tp, cp=cp, **mode))[0]["attention.core"]
    sizes = {one.name: one.size_bytes for one in core.transient_backward}
    assert sizes.get("attention.key_gradients", 0) == pytest.approx(share * sizes["attention.key"])
