"""How context parallel ranks exchange where nobody says: as their software does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.launches import PLAIN_ISSUE, Launches, launches
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.traffic import TrafficReport
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation
from distsim.layers.names import EXCHANGE
from distsim.specs.job import Job

LONG: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 64, "seq": 65536, "cp": 8}


def ops(report: TrafficReport) -> set[str]:
    return {row.op for row in report.collectives if row.purpose.startswith("context parallel")}


@pytest.mark.parametrize("framework", ["deepspeed", "megatron-deepspeed"])
def test_deepspeed_trades_heads_for_tokens(framework: str) -> None:
    """Its sequence parallelism is Ulysses: there is no ring."""
    asked, usual = (distsim.comm(**LONG, framework=framework, **mode) for mode in ({"cp_mode": "all_to_all"}, {}))
    assert ops(usual) == {"all_to_all"} and usual.wire_bytes_per_rank == asked.wire_bytes_per_rank
    assert usual.to_dict()["job"]["cp_mode"] == "all_to_all"
    ring = distsim.comm(**LONG, framework=framework, cp_mode="ring")
    assert ops(ring) == {"send_recv"}
    assert ops(distsim.comm(**LONG, framework="megatron-core")) == {"send_recv"}


def test_transformers_runs_the_loop_of_torch() -> None:
    """accelerate's context parallelism is that of torch: gathered keys are attended to step by step, whose results are
    merged, and gradients go round in fp32."""
    job = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "seq": 32768, "zero": 3, "recompute": "full"}
    alone, together = (resolve(Job(**job, cp=cp, framework="huggingface")) for cp in (1, 8))
    issued = [
        sum(launches(setup, one).issued[0] for block in build_stages(setup)[0].layers for one in block[0].operations)
        for setup in (alone, together)
    ]
    assert issued[1] > 1.5 * issued[0]
    rows = [one for block in build_stages(together)[0].layers for one in block[0].operations if one.name == EXCHANGE]
    assert [one.shape[1] for one in rows] == [7]
    assert "send_recv" in ops(distsim.comm(Job(**job, cp=8, framework="huggingface")))


@pytest.mark.parametrize(("cp", "batch"), [("1", "8"), ("4", "2")])
def test_a_last_label_is_not_cut(cp: str, batch: str) -> None:
    """Rows count samples with it: 65,537 tokens over four ranks had been refused."""
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "65537", "global_batch": batch,
             "micro_batch": "1", "framework": "torchtitan", "recompute": "full", "cp": cp}  # fmt: skip
    found = replay(Run(cells, 2))
    assert not found.reason
    assert ("assumed 65536 tokens and a last label" in found.assumed) is (cp == "4")


@pytest.mark.parametrize("ask", [distsim.comm, distsim.step, distsim.memory])
def test_heads_that_do_not_divide_are_told_though_nobody_named_the_exchange(ask: Any) -> None:
    job = {**LONG, "cp": 64, "framework": "deepspeed"}
    with pytest.raises(DistsimError, match="does not divide 32 heads") as told:
        ask(**job)
    assert "deepspeed uses all-to-all unless --cp-mode names another" in str(told.value)
    assert "valid degrees: 1, 2, 4, 8, 16, 32" in str(told.value)
    assert ask(**job, cp_mode="ring")


def test_a_search_under_deepspeed_leaves_out_ranks_that_cannot_trade_heads() -> None:
    """12 heads go to 4 ranks, not to 8."""
    job = Job(model="gpt2", gpu="h100-sxm", global_batch=8, framework="deepspeed")
    bounds = parse_bounds({"cp": "4..8", "tp": "1", "recompute": "none", "micro_batch": "1"}, [])
    found = search(Request(job, (8,), bounds, top=20)).best
    assert {one.report.setup.layout.cp for one in found} == {4}
    assert {one.report.setup.layout.cp_mode for one in found} == {"all_to_all"}


def test_torchtitan_gathers_keys_and_flex_attention_reads_them_at_once() -> None:
    """Keys and values each by themselves, which are kept, and their gradients once; full recomputation gathers anew."""
    usual, again = (distsim.comm(**LONG, framework="torchtitan", recompute=what) for what in ("none", "full"))
    (size,) = {row.bytes_per_call for row in usual.collectives if row.purpose == "context parallel"}
    assert size == 65536 * 8 * 128 * 2
    for report, gathered in ((usual, {}), (again, {("all_gather", "backward"): 64})):
        calls: Counter[tuple[str, str]] = Counter()
        for row in report.collectives:
            if row.purpose.startswith("context parallel"):
                calls[row.op, row.phase] += round(row.calls)
        assert calls == {("all_gather", "forward"): 64, ("reduce_scatter", "backward"): 64, **gathered}
    whole, ring = (
        distsim.memory(**LONG, framework="torchtitan", cp_mode=mode, recompute="none")
        for mode in ("all_gather", "ring")
    )
    kept = 2 * 65536 * 8 * 128 * 2 * (1 - 1 / 8)  # of all other ranks
    copied = 65536 / 8 * 4096 * 2  # results of the ring's steps, put together in another order than is read
    assert whole.worst.saved.per_layer - ring.worst.saved.per_layer == kept - copied


def test_other_attention_of_torch_attends_in_steps_all_the_same() -> None:
    """context_parallel_rotate_method is allgather: gradients still go round in fp32, results are merged in steps."""
    framework = catalog.load("frameworks", "torchtitan")
    kernels = framework.kernels.model_copy(update={"attention_kernel": "sdpa"})
    plain = framework.model_copy(update={"kernels": kernels})
    found = [_exchange({"framework": plain}, framework="torchtitan", cp_mode=mode) for mode in ("all_gather", "ring")]
    assert {(row.op, row.phase) for row in found[0][1].collectives} == {
        ("all_gather", "forward"), ("all_gather", "backward"), ("send_recv", "backward"),
    }  # fmt: skip
    assert moved_bytes(*found[0]) == moved_bytes(*found[1])
    assert moved_bytes(*_exchange(framework="megatron-core", cp_mode="all_gather")) == (0, 0)


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_transformer_engines_merges_are_those_of_its_loops(cp: int) -> None:
    """Mean of all ranks of a causal ring, in bytes per element of queries and of keys and values, step by step as
    AttnFuncWithCPAndKVP2P takes them: 4 where 16 bits are copied, 6 where they are added, half of it for half a
    tensor. A rank's last ``rank`` steps of backward but one have all queries and half the keys, those before half the
    queries and all keys, and the last one is its own."""

    def forward(rank: int) -> tuple[float, float]:
        return 4 + sum(6 if step <= rank else 3 for step in range(1, cp)), 4

    def backward(rank: int) -> tuple[float, float]:
        queries, keys, meets = 0.0, 4.0, cp - 1 - rank
        for step in range(cp):
            whole, own, first = step >= meets, step == cp - 1, step == 0
            half = 2 if first else 3
            queries += (4 if first else 2 + 3 if step == meets else 6) if whole else half
            keys += 4 + (2 + 3 if rank == 0 else 6) if own else 2 + half if whole else 4 + 2 * half
        return queries, keys

    setup, exchange = _exchange(framework="megatron-core", cp=cp)
    elements = setup.layout.seq / cp * setup.model.head_dim * setup.layout.micro_batch
    sizes = [elements * heads for heads in (setup.model.heads, 2 * setup.model.kv_heads)]
    told = [
        sum(size * sum(way(rank)[part] for rank in range(cp)) / cp for part, size in enumerate(sizes))
        for way in (forward, backward)
    ]
    assert moved_bytes(setup, exchange) == pytest.approx(tuple(told))


def _exchange(replaced: dict[str, Any] | None = None, /, **more: Any) -> tuple[Setup, Operation]:
    setup = resolve(Job(**{**LONG, **more}), replaced)
    block = build_stages(setup)[0].layers[0][0]
    return setup, next(one for one in block.operations if one.name == "attention.exchange")


def _launched(**more: Any) -> Launches:
    return launches(*_exchange(**more))


def test_each_step_of_a_ring_costs_the_host() -> None:
    """Transformer Engine: attention (one kernel forward, two backward), three and five that cut halves and merge, and a
    send with each; of the first step only its send, and in backward those of keys and of gradients. In forward steps
    take two streams in turn, so that the GPU has no gaps between them."""
    for cp in (2, 4, 8):
        found, steps = _launched(framework="megatron-core", cp=cp), cp - 1
        forward, backward = steps * (1 + 3) + steps - 1, steps * (2 + 5) + 2 * (steps - 1)
        assert found.issued == pytest.approx((1 + PLAIN_ISSUE * forward, 2 + PLAIN_ISSUE * backward))
        assert found.kernels == (1, 2 + 7 * steps)
    gathered = _launched(framework="megatron-core", cp_mode="all_gather")
    assert gathered.kernels == gathered.issued == (1, 2)
    assert _launched(framework="deepspeed").kernels == (4, 4)


def test_merging_in_plain_torch_takes_more_kernels_than_compiled() -> None:
    rings = {"framework": "torchtitan", "cp_mode": "ring"}
    eager, compiled = (_launched(**rings, compile=on).kernels for on in (False, True))
    assert eager == (1 + 7 * (1 + 11), 2 + 7 * (2 + 7))
    assert compiled == (1 + 7 * (1 + 3), 2 + 7 * (2 + 4))


def test_graphs_hold_a_rings_steps() -> None:
    """MLPerf's runs with context parallelism were graphs of layers, and its host times are theirs."""
    graphed, plain = (_launched(framework=name, model="gpt3-6.7b").issued for name in ("nemo-mlperf", "nemo"))
    assert graphed == (1, 2) and plain[0] > graphed[0]
    assert _launched(framework="megatron-core", cuda_graphs="iteration").issued == (0, 0)


@pytest.mark.parametrize("framework", ["megatron-core", "megatron-lm", "megatron-bridge", "nemo", "nemo-mlperf"])
def test_transformer_engine_has_no_ring_in_windows_or_beside_sinks(framework: str) -> None:
    windows = {"gpu": "h100-sxm", "gpus": 32, "tp": 4, "cp": 8, "seq": 32768, "framework": framework}
    assert ops(distsim.comm("gemma-3-27b", **windows)) == {"all_gather", "reduce_scatter"}
    assert ops(distsim.comm("gemma-3-27b", **windows | {"tp": 2}, cp_mode="all_to_all")) == {"all_to_all"}
    assert ops(distsim.comm("gpt-oss-20b", **windows | {"tp": 1})) == {"all_to_all"}
    assert ops(distsim.comm("llama-3-8b", **windows)) == {"send_recv"}
    with pytest.raises(DistsimError, match="use --cp-mode all_gather or all_to_all"):
        distsim.step("gemma-3-27b", **windows, cp_mode="ring")
    with pytest.raises(DistsimError, match="use --cp-mode all_to_all"):
        distsim.step("gpt-oss-20b", **windows | {"tp": 1}, cp_mode="all_gather")


def test_other_software_and_nobodys_keeps_the_ring_that_was_asked_for() -> None:
    windows = {"model": "gemma-3-27b", "gpu": "h100-sxm", "gpus": 8, "cp": 8, "seq": 32768}
    assert ops(distsim.comm(**windows, framework="fsdp")) == {"send_recv"}
    asked = distsim.comm(**windows, cp_mode="ring")
    assert ops(asked) == {"send_recv"} and any("no --cp-mode ring" in note for note in asked.notes)


def test_a_search_of_a_model_with_sinks_trades_heads() -> None:
    job = Job(model="gpt-oss-20b", gpu="h100-sxm", global_batch=8, seq=32768)
    bounds = parse_bounds({"cp": "4..8", "tp": "1", "recompute": "none,full", "micro_batch": "1"}, [])
    found = search(Request(job, (8,), bounds, top=20)).best
    assert {one.report.setup.layout.cp_mode for one in found} == {"all_to_all"}


@pytest.mark.parametrize(
    ("model", "cp", "widths"),
    [
        # gate, x, B, C, step widths and the output; one group of B and C, which eight ranks get a copy of each
        ("mamba2-2.7b", 8, [5120, 5120, 8 * 128, 8 * 128, 80, 5120]),
        ("mamba2-2.7b", 2, [5120, 5120, 2 * 128, 2 * 128, 80, 5120]),
        # queries, keys, values, gate, what is written and forgotten, the output
        ("qwen3-next-80b-a3b", 8, [16 * 128, 16 * 128, 32 * 128, 32 * 128, 32, 32, 32 * 128]),
        # every channel decays by itself
        ("kimi-linear-48b-a3b", 8, [32 * 128] * 4 + [32, 32 * 128] + [32 * 128]),
        # queries, keys and values are one product
        ("minimax-text-01", 8, [3 * 64 * 128, 64 * 128]),
    ],
)
def test_recurrent_mixers_trade_their_inputs_one_by_one(model: str, cp: int, widths: list[int]) -> None:
    """Megatron core makes an all-to-all of each input and of the output, and of each gradient
    (ssm/mamba_context_parallel.py, pre_conv_ssm and post_conv_ssm; ssm/gated_delta_net.py, split_sections)."""
    report = distsim.comm(model, gpu="h100-sxm", gpus=8, cp=cp, seq=65536, zero=3, recompute="none")
    found = [row for row in report.collectives if row.group == "cp" and row.op == "all_to_all"]
    assert {row.purpose for row in found} == {"context parallel"}
    for phase in ("forward", "backward"):
        sent = sorted(
            row.bytes_per_call * cp / 65536 / 2 for row in found if row.phase == phase for _ in range(int(row.calls))
        )
        layers = len(sent) // len(widths)
        assert sent == sorted(widths * layers) and layers > 1
    assert not any(row.purpose.startswith("tensor parallel") for row in report.collectives)


def test_transformer_engine_copies_no_key_value_heads_that_ranks_trade() -> None:
    """It asserts that queries' and keys' heads divide by the ranks; Ulysses of DeepSpeed copies."""
    job = {**LONG, "cp_mode": "all_to_all"}
    distsim.step(**{**job, "cp": 4, "tp": 2}, framework="megatron-core")
    with pytest.raises(
        DistsimError, match="does not copy key-value heads, of which a rank of llama-3-8b has 4"
    ) as told:
        distsim.step(**{**job, "tp": 2}, framework="megatron-core")
    assert "valid degrees: 1, 2, 4; or use --cp-mode all_gather" in str(told.value)
    assert distsim.step(**{**job, "tp": 2}, framework="deepspeed").seconds > 0
    latent = {**job, "model": "deepseek-v2-lite", "ep": 8}  # keys for every head, of which a file may name one
    model = distsim.load_model("deepseek-v2-lite").spec.model_copy(update={"kv_heads": 1})
    assert distsim.step(Job(**{**latent, "model": model}, framework="megatron-core")).seconds > 0
    asked = Job(model="llama-3-8b", gpu="h100-sxm", seq=65536, global_batch=64, cp_mode="all_to_all",
                framework="megatron-core")  # fmt: skip
    bounds = parse_bounds({"cp": "4,8,16", "tp": "1,2", "pp": "1", "recompute": "full", "micro_batch": "1"}, [])
    found = search(Request(asked, (64,), bounds, top=50)).best
    assert {(one.report.setup.layout.tp, one.report.setup.layout.cp) for one in found} == {(1, 4), (1, 8), (2, 4)}
