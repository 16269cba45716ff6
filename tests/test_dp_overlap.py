"""Data parallel exchanges beside computation or apart from it, as a job or a run's notes say."""

import pytest

import distsim
from distsim.engine.jobs.dp_overlap import APART
from distsim.engine.jobs.resolve import resolve
from distsim.engine.runs.profile import framework_of
from distsim.engine.step import seconds_of, step_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.specs.job import Job

JOB = {"model": "llama-13b", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "seq": 4096, "global_batch": 16}


def exposed_seconds(**more: object) -> float:
    return step_of(resolve(Job(**{**JOB, **more}))).breakdown["data_parallel"]


@pytest.mark.parametrize(("framework", "zero"), [("megatron-core", 0), ("megatron-core", 1), ("deepspeed", 3)])
def test_what_nothing_hides_is_exposed_whole(framework: str, zero: int) -> None:
    job = {
        "framework": framework,
        "zero": zero,
        **({"tp": 1, "micro_batch": 8, "global_batch": 512} if zero == 3 else {}),
    }
    beside, alone = exposed_seconds(**job), exposed_seconds(**job, dp_comm_overlap=False)
    assert alone > 1.2 * beside > 0
    assert exposed_seconds(**job, dp_comm_overlap=True) == beside
    report = distsim.comm(**{**JOB, **job})
    apart = distsim.comm(**{**JOB, **job, "dp_comm_overlap": False})
    assert apart.wire_bytes_per_rank == pytest.approx(report.wire_bytes_per_rank)
    calls = [sum(row.calls for row in one.collectives if row.role == "gradients") for one in (apart, report)]
    assert calls[0] == calls[1] if zero == 3 else calls[0] < calls[1]  # Megatron's have one bucket then


def test_more_micro_batches_do_not_hide_it() -> None:
    one, many = (exposed_seconds(global_batch=size, dp_comm_overlap=False) for size in (8, 64))
    assert many == pytest.approx(one, rel=0.05)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"framework": "torchtitan", "dp_comm_overlap": False}, "torchtitan has no switch"),
        ({"framework": "megatron-2021", "dp_comm_overlap": True}, "reduces gradients after backward"),
    ],
)
def test_frameworks_without_a_choice_say_so(more: dict[str, object], problem: str) -> None:
    with pytest.raises(DistsimError, match=problem):
        resolve(Job(**{**JOB, **more}))


def test_a_job_that_says_what_holds_anyway_is_the_same() -> None:
    plain = seconds_of(resolve(Job(**JOB, framework="megatron-2021")))
    assert seconds_of(resolve(Job(**JOB, framework="megatron-2021", dp_comm_overlap=False))) == plain


@pytest.mark.parametrize(
    ("notes", "apart"),
    [
        ("DeepSpeed ZeRO-3 with overlap_comm false", True), ("overlap_comm False; LoRA", True),
        ("no A2A overlap; no overlap_grad_reduce", True), ("CUDA_DEVICE_MAX_CONNECTIONS=1, no overlap flags", True),
        ("no overlap of gradient all-reduce", True), ("ZeRO-3 without overlap and without reduce_scatter", True),
        ("no overlap of the expert all-to-all", False), ("TP overlap off", False), ("overlap_comm, buckets", False),
        ("overlap_grad_reduce off; GiB", True), ("--overlap-grad-reduce=False", True),
        ("overlaps off, mock data", True),
        ("'no overlap of compute and communication'", True), ("overlap of gradient reduction disabled", True),
        ("overlap of gradient reduce not named", False), ("overlap_param_gather off", False),
    ],
)  # fmt: skip
def test_notes_that_deny_it_are_read(notes: str, apart: bool) -> None:
    run = Run({"framework": "megatron-core", "gpu": "h100-sxm", "n_gpus": "8", "year": "2026", "notes": notes}, 2)
    traffic = framework_of(run).traffic
    assert all(getattr(traffic, name) == value for name, value in APART.items()) is apart


@pytest.mark.parametrize(
    ("notes", "apart"),
    [
        ("64 MB buckets, overlap_param_gather off", True), ("parameter gather not overlapped", True),
        ("overlap of the parameter gather off, of gradient reduction on", True), ("overlap_param_gather on", False),
        ("overlap-grad-reduce, overlap-param-gather", False), ("parameter gather overlapped", False),
    ],
)  # fmt: skip
def test_gathers_of_parameters_may_wait_by_themselves(notes: str, apart: bool) -> None:
    run = Run({"framework": "megatron-core", "gpu": "h100-sxm", "n_gpus": "8", "year": "2026", "notes": notes}, 2)
    traffic = framework_of(run).traffic
    assert traffic.overlap_gradients and traffic.overlap_updated is not apart


def test_without_data_parallel_ranks_it_says_nothing() -> None:
    told = "--no-dp-comm-overlap has no effect without data parallel ranks"
    alone, shared = ({**JOB, "gpus": gpus, "dp_comm_overlap": False} for gpus in (8, 16))
    assert told in step_of(resolve(Job(**alone))).notes and told not in step_of(resolve(Job(**shared))).notes
