"""What a GPU holds beside the textbook: hosts ahead of it, workspaces by chip, experts scaled early, wide softmaxes;
and what replays of measured runs know of theirs."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distsim import catalog
from distsim.engine.evidence import replay
from distsim.engine.figures import Figures
from distsim.engine.footprint.buffers import buffer_bytes
from distsim.engine.footprint.communicators import MOST_RANKS, communicator_buffers
from distsim.engine.footprint.overhead import overhead_bytes
from distsim.engine.footprint.states import states
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages, stage_at
from distsim.engine.memory import memory_of
from distsim.engine.networks.nccl_graph import tables
from distsim.engine.runs.memory import counts_of, held_by, host_ahead
from distsim.engine.runs.setup import setup_of
from distsim.engine.validate import shipped_runs, unseen_runs
from distsim.interop.runs import Run, read_runs
from distsim.layers.ledger import distinct_saved, saved_bytes
from distsim.specs.job import Job
from distsim.specs.timing import CHECKED
from distsim.units import GIB, MIB

RUNS = {run.id: run for run in read_runs(shipped_runs())}
NANOTRON: dict[str, Any] = {"model": "llama-7b", "gpu": "h100-sxm", "framework": "nanotron", "seq": 4096, "tp": 8,
                            "micro_batch": 1, "global_batch": 128}  # fmt: skip


def _exchanges(setup: Setup) -> float:
    """Gathered tensors that the first stage holds, beside two persistent ones."""
    whole = setup.layout.tokens * setup.model.hidden * 2
    return float((memory_of(setup).stages[0].categories["buffers"] - 200e6) / whole - 2)


@pytest.mark.parametrize(
    ("pp", "ahead", "behind"),
    [(1, 50, 0), (2, 48, 0), (4, 48, 36), (8, 48, 48), (16, 48, 48)],
)
def test_a_host_behind_its_gpu_holds_exchanges_only_while_a_pipeline_fills(pp: int, ahead: int, behind: int) -> None:
    """Four in a layer, of which four stages have nine on the first: half of the micro-batches in flight, less one."""
    setup = resolve(Job(**NANOTRON, pp=pp, gpus=8 * pp))
    assert _exchanges(setup) == pytest.approx(ahead)
    slow = replace(setup, kernels=setup.kernels.model_copy(update={"host_ahead": False}))
    assert _exchanges(slow) == pytest.approx(behind)


def test_a_pipeline_that_only_fills_and_drains_holds_what_filling_left() -> None:
    setup = resolve(Job(**{**NANOTRON, "global_batch": 4}, pp=4, gpus=32))
    assert _exchanges(setup) == pytest.approx(36)
    many = resolve(Job(**{**NANOTRON, "global_batch": 5}, pp=4, gpus=32))
    assert _exchanges(many) == pytest.approx(48)


def test_held_exchanges_of_arrays_are_those_of_each_layout() -> None:
    setup = resolve(Job(**NANOTRON, pp=2, gpus=16))
    stage, figures = build_stages(setup)[0], Figures()
    held = states(setup, stage.held(), figures)
    counts = np.array([1, 2, 3, 128])
    whole = replace(setup, layout=setup.layout.with_(micro_batches=counts))
    found = buffer_bytes(whole, stage, held, Figures())
    for place, count in enumerate(counts):
        single = replace(setup, layout=setup.layout.with_(micro_batches=int(count)))
        assert found[place] == pytest.approx(buffer_bytes(single, stage, held, Figures()))


def test_checked_software_is_ahead_where_the_gpu_has_more_to_do() -> None:
    """The same layout with 4 and 8 sequences: its checks take 24 ms a layer, the GPU 12 and 24."""
    small, large = (setup_of(RUNS[name]) for name in ("nanotron-0695", "nanotron-0383"))
    assert (small.layout.micro_batch, large.layout.micro_batch) == (4, 8)
    assert small.layout.with_(micro_batch=8, micro_batches=4) == large.layout
    assert [host_ahead(one, CHECKED) for one in (small, large)] == [False, True]
    for name in ("nanotron-0695", "nanotron-0383", "nanotron-0222", "nanotron-0877", "nanotron-0342"):
        error = replay(RUNS[name], strange=True).memory_error
        assert error is not None and abs(error) < 0.06, name


def _moe(**options: Any) -> Setup:
    settings = {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 8, "ep": 8, "framework": "megatron-core"}
    return resolve(Job.read({**settings, **options}))


def _of_experts(setup: Setup) -> dict[str, float]:
    block = build_stages(setup)[0].layers[0][0]
    return {name: float(size) for name, size in distinct_saved(block.operations).items() if "experts" in name}


def test_experts_that_are_scaled_before_their_second_product_keep_no_outputs() -> None:
    """One kernel makes a gated activation again; a plain one's output is kept beside its product with the weights."""
    setup = _moe()
    early = _of_experts(setup)
    late = _of_experts(replace(setup, kernels=setup.kernels.model_copy(update={"expert_scale": "after"})))
    assert set(late) - set(early) == {"mlp.experts.output"}
    plain = replace(setup, model=setup.model.model_copy(update={"gated": False, "activation": "gelu"}))
    kept = _of_experts(plain)
    assert "mlp.experts.output" not in kept
    assert kept["mlp.experts.unscaled"] == kept["mlp.experts.product"]


@pytest.mark.parametrize(
    ("gpu", "dense", "experts"),
    [("h100-sxm", 96, 224), ("b200-sxm", 96, 224), ("a100-sxm4-80gb", 20.25, 36.25)],
)
def test_workspaces_follow_the_chip_and_the_experts(gpu: str, dense: float, experts: float) -> None:
    """32 MiB each for two handles of cuBLAS and one of Transformer Engine, four more for grouped products; before
    Hopper 8.125 and 4."""
    one: dict[str, Any] = {"gpu": gpu, "gpus": 1, "zero": 0, "seq": 128}
    setups = resolve(Job(model="gpt2-124m", framework="megatron-core", **one)), _moe(**one, ep=1)
    bare = [replace(one, kernels=one.kernels.model_copy(update={"gradient_places": "none"})) for one in setups]
    sizes = [memory_of(setup).worst for setup in bare]
    found = [float(size.categories["buffers"]) / MIB for size in sizes]
    assert found == pytest.approx([dense, experts], rel=0.01)


def _kept(micro_batch: int, model: Any = "gpt3-175b", **options: Any) -> float:
    """Bytes that a layer keeps per sequence with scores in memory."""
    job: dict[str, Any] = {
        "model": model, "gpu": "h100-sxm", "gpus": 32, "tp": 32, "attention": "eager", "seq": 2048,
        "framework": "megatron-core", "micro_batch": micro_batch, "global_batch": micro_batch,
    }  # fmt: skip
    block = build_stages(resolve(Job.read({**job, **options})))[0].layers[0][0]
    return float(saved_bytes(block.operations)) / micro_batch


@pytest.mark.parametrize(("dropout", "wider"), [(0.1, 2), (0.0, 4)])
def test_a_composed_softmax_keeps_its_output_in_fp32(dropout: float, wider: int) -> None:
    """Three heads a rank: one sequence makes no multiple of four. With dropout, which keeps what it gives, the fp32 one
    stands instead of the narrow one; without, beside its cast."""
    model = catalog.load("models", "gpt3-175b").model_copy(update={"attention_dropout": dropout})
    scores = 96 / 32 * 2048 * 2048
    more = _kept(1, model) - _kept(4, model)
    assert more == pytest.approx(wider * scores, rel=1e-3)


def test_a_longer_sequence_than_the_kernel_takes_is_composed_too() -> None:
    fused, composed = _kept(4, seq=4096), _kept(4, seq=4128)
    assert composed > fused * 1.2


def test_ms_swift_prints_what_torch_has_reserved() -> None:
    run = next(run for run in RUNS.values() if run.source == "modelscope/ms-swift")
    setup = setup_of(run)
    assert counts_of(run, setup) == "reserved"
    stated = Run({**run.cells, "source": "elsewhere"}, 2)
    assert counts_of(stated, setup) == "device"


def test_experts_of_megatron_are_cut_like_the_rest_where_no_cell_says() -> None:
    run = RUNS["mlmci-0199"]
    assert run.text("etp") is None
    setup = setup_of(run)
    assert (setup.layout.tp, setup.layout.etp) == (2, 2)
    assert setup_of(RUNS["mlmci-0200"]).layout.etp == 1
    between = memory_of(setup).worst.states
    measured = 1.2629 * 2**30  # what its log says is allocated between steps
    held = between.parameters + between.gradients + between.optimizer
    assert 60 * MIB < measured - held < 110 * MIB


def test_tests_of_several_optimizer_instances_shard_over_a_part_of_the_replicas() -> None:
    for name, group in (("mlmci-0091", 2), ("mlmci-0189", 1)):
        setup = setup_of(RUNS[name])
        assert (setup.layout.dp, setup.layout.zero_group) == (2 * group, group)
        error = replay(RUNS[name], strange=True).memory_error
        assert error is not None and abs(error) < 0.02


def test_notes_and_years_tell_what_lies_beside_the_model() -> None:
    run = RUNS["mlmci-0098"]  # A100, deterministic
    held = held_by(run, setup_of(run), 2026.0)
    assert held.framework.buffers.older_workspace_bytes == pytest.approx(68 * MIB, rel=0.01)
    qlora = RUNS["misc3-0184"]
    held = held_by(qlora, setup_of(qlora), 2023.0)
    assert held.framework.buffers.workspace_bytes == pytest.approx(0.8e9)
    assert held.framework.overhead.context_bytes == pytest.approx(1.0e9)
    assert not held.kernels.loss_upcast
    assert held_by(qlora, setup_of(qlora), 2025.0).framework.overhead.context_bytes == pytest.approx(0.5e9)


@pytest.mark.parametrize(("gpu", "gibibytes"), [("h100-sxm", 1.2), ("l40s", 0.9), ("mi325x", 2.4)])
def test_contexts_grow_with_the_chip(gpu: str, gibibytes: float) -> None:
    """What cards held beside torch's tensors of one BERT (mila-iqia/milabench); of a GPT-2 a B200 held 0.5 GB more than
    a card of Ada with 142 units."""
    held = {
        name: memory_of(resolve(Job(model="gpt2", gpu=name, gpus=1))).stages[0].categories["framework"]
        for name in (gpu, "l40s", "b200-sxm")
    }
    assert held[gpu] / GIB == pytest.approx(gibibytes, abs=0.06)
    assert held["b200-sxm"] - held["l40s"] == pytest.approx(0.5e9, abs=0.03e9)


def test_an_optimizer_that_steps_in_backward_leaves_no_gradients() -> None:
    before, after = (held_by(run, setup_of(run), 2024.0) for run in (RUNS["misc-0107"], RUNS["misc-0110"]))
    assert not before.framework.buffers.steps_in_backward and after.framework.buffers.steps_in_backward
    peak = memory_of(after).worst
    assert memory_of(before).worst.categories["gradients"] > 0 == peak.categories["gradients"]
    assert peak.peak_moment.startswith("loss")
    error = replay(RUNS["misc-0110"], strange=True).memory_error
    assert error is not None and abs(error) < 0.07


@pytest.mark.parametrize(
    ("part", "every", "bar"), [("NVIDIA/Megatron-LM", 3, 0.03), ("QwenLM/Qwen", 2, 0.09), ("modelscope", 3, 0.05)]
)
def test_sources_stay_as_close_as_they_are(part: str, every: int, bar: float) -> None:
    rows = [run for run in RUNS.values() if run.source.startswith(part) and run.number("mem_peak_gb_per_gpu")]
    errors = [abs(error) for run in rows[::every] if (error := replay(run, strange=True).memory_error) is not None]
    assert len(errors) > 12
    assert statistics.median(errors) <= bar


@pytest.mark.parametrize(
    ("kind", "notes", "counts"),
    [
        ("reserved", "", "reserved"),
        ("torch max allocated", "peak reserved 70 GiB", "allocated"),
        ("nvidia-smi", "", "device"),
        ("pynvml", "", "device"),
        ("GPU memory used", "", "device"),
        ("used (max_memory_allocated)", "", "allocated"),
        ("unknown", "memory as printed (GB, likely nvidia-smi)", "device"),
        ("unknown", "memory = torch.cuda.max_memory_allocated", "allocated"),
        ("unknown", "tokens/s and peak reserved memory of rank 0", "reserved"),
        ("unknown", "offloaded states are not allocated on the GPU", "reserved"),
        ("unknown", 'memory is Megatron\'s "mem usages", a fraction of the card', "device"),
        ("", "", "reserved"),
    ],
)
def test_a_rows_own_words_tell_what_its_figure_counts(kind: str, notes: str, counts: str) -> None:
    setup = resolve(Job(model="llama-7b", gpu="h100-sxm", gpus=8, framework="fsdp", zero=3))
    assert counts_of(Run({"mem_kind": kind, "notes": notes, "source": "somebody"}, 2), setup) == counts


def test_mem_usages_are_of_the_last_ranks_device() -> None:
    """OpenEuroLLM's 32B on 2,048 GH200 without graphs, one to eight stages, micro-batches of two and four: 17 to 71 GiB
    (OpenEuroLLM/NVIDIA-Megatron-LM training/training.py, training_log)."""
    runs = {run.id: run for run in read_runs(unseen_runs())}
    for name in ("p16-0083", "p16-0084", "p16-0085", "p16-0086", "l59-0047"):
        assert abs(replay(runs[name], strange=True).memory_error or 1) < 0.07, name


@pytest.mark.parametrize(
    ("tp", "shared", "forward", "backward"), [(8, True, 14, 16), (8, False, 10, 12), (1, True, 10, 12)]
)
def test_a_loss_that_torch_shares_out_is_composed(tp: int, shared: bool, forward: int, backward: int) -> None:
    """Bytes per logit at the peaks of loss_parallel and of a plain cross entropy, as recorded with torch 2.13."""
    options: dict[str, Any] = {} if tp == 1 else {"loss_parallel": shared}
    setup = resolve(Job(model="llama-3.1-8b", gpu="h100-sxm", gpus=8, framework="torchtitan", tp=tp, **options))
    head = build_stages(setup)[-1].head
    assert head is not None
    loss = head.operations[-1]
    logits = setup.layout.tokens * setup.model.vocab / (tp if shared else 1)
    kept = next(tensor.size_bytes for tensor in loss.saved if tensor.name == "loss.log_softmax")
    found = [kept + sum(t.size_bytes for t in tensors) for tensors in (loss.transient_forward, loss.transient_backward)]
    assert found == pytest.approx([forward * logits, backward * logits])


def test_qwens_table_is_in_decimal_gigabytes() -> None:
    """One of its figures is more than its cards have otherwise; all of them come out, at every length and size."""
    rows = [run for run in RUNS.values() if run.source == "QwenLM/Qwen" and run.number("mem_peak_gb_per_gpu")]
    assert max(run.number("mem_peak_gb_per_gpu") or 0 for run in rows) > 80
    errors = [error for run in rows if (error := replay(run, strange=True).memory_error) is not None]
    assert len(errors) == 44
    assert statistics.median(abs(error) for error in errors) < 0.03
    assert abs(statistics.median(errors)) < 0.01


@pytest.mark.parametrize("degree", ["tp", "pp", "ep", "cp"])
def test_every_kind_of_group_has_a_communicator(degree: str) -> None:
    jobs = (Job(model="mixtral-8x7b", gpu="a100-sxm4-80gb", gpus=16, zero=1, **{degree: ranks}) for ranks in (1, 2))
    one, more = map(resolve, jobs)
    each = more.framework.overhead.communicator_bytes
    found = [overhead_bytes(setup, stage_at(setup, 0), Figures()) for setup in (more, one)]
    assert found[0] - found[1] == pytest.approx(each)
    assert each > 0


def _for_the_switch(**options: Any) -> float:
    figures = Figures()
    communicator_buffers(resolve(Job(**{"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, **options})), figures)
    return sum(one.value for one in figures if one.formula == "multicast_bytes")


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ({}, 8),  # vllm-project/vllm issue 9699: 2,415,919,104 B where NCCL has eight ranks
        ({"gpus": 4}, 4),
        ({"gpus": 2}, 0),  # from three on
        ({"gpus": 64}, 8),
        ({"gpus": 4, "cp": 4}, 4),  # of gradients; context parallel ranks send
        ({"framework": "megatron-core"}, 16),  # the group of all ranks is another one
        ({"framework": "megatron-core", "tp": 2, "pp": 2}, 8),
        ({"framework": "megatron-bridge"}, 0),  # NCCL_NVLS_ENABLE=0
        ({"gpu": "a100-sxm4-80gb"}, 0),
        ({"gpu": "h100-pcie"}, 0),
    ],
)
def test_switches_that_make_sums_take_buffers_of_each_rank(options: dict[str, Any], ranks: int) -> None:
    assert _for_the_switch(**{"framework": "fsdp", **options}) == pytest.approx(ranks * 301_989_888, rel=1e-4)


def test_buffers_for_the_switch_have_as_many_heads_as_its_sums() -> None:
    assert tables()["nvls"]["heads"] == MOST_RANKS


def test_megatron_has_groups_of_all_ranks_beside_its_others() -> None:
    """verl-project/verl pull request 6408: NCCL holds some 7 GB of each of eight H100 under tp 2, pp 2 and dp 2."""
    sums = []
    for zero, gpus in ((1, 8), (0, 8), (1, 1)):
        job = Job(model="llama-3-8b", gpu="a100-sxm4-80gb", gpus=gpus, framework="megatron-core", zero=zero)
        setup = resolve(job)
        sums.append(communicator_buffers(setup, Figures()) / setup.framework.overhead.communicator_bytes)
    assert sums == pytest.approx([3, 2, 0])


def test_copies_of_gradients_for_the_step_are_of_the_own_shard() -> None:
    """Six bytes for each of Llama 7B's parameters, which ZeRO 1 shares out."""
    found = []
    for gpus in (1, 8):
        job = Job(model="llama-7b", gpu="a100-sxm4-80gb", framework="megatron-deepspeed", zero=1, gpus=gpus)
        figures = memory_of(resolve(job)).stages[0].figures
        found += [one.value for one in figures if one.label == "gradient copies for the optimizer step"]
    assert found == pytest.approx([6 * 6_738_415_616, 6 * 6_738_415_616 / 8])


def test_copies_of_experts_gradients_are_of_the_shard_whose_states_a_rank_has() -> None:
    """Experts on eight ranks are shared by no others: each rank steps all of its own, as many as an eighth of all."""
    found = []
    for ep in (1, 8):
        job = Job(model="mixtral-8x7b", gpu="h100-sxm", gpus=8, framework="megatron-deepspeed", zero=1, ep=ep, seq=2048)
        stage = memory_of(resolve(job)).stages[0]
        found += [one.value for one in stage.figures if one.label == "gradient copies for the optimizer step"]
        assert found[-1] == pytest.approx(stage.categories["optimizer"] / 12 * 6)  # master copy and two moments in fp32
    assert found[0] == pytest.approx(found[1])
