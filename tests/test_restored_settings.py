"""Advice puts back what the user stated where it costs memory or time; what is proposed, typed, gives what was told."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.advice.pairs import MOST_PAIRS, pairs
from distsim.engine.advice.restored import OFFLOADING, restored
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.report.step import quicker_lines, searched
from distsim.report.style import style
from distsim.specs.job import Job

SMALL: dict[str, Any] = {"model": "llama-2-13b", "gpu": "h100-sxm", "gpus": 16, "global_batch": 64, "tp": 2, "zero": 1}
WHOLE: dict[str, Any] = {**SMALL, "tp": 1, "zero": 3}
LONG: dict[str, Any] = {**SMALL, "seq": 8192}
LOGITS: dict[str, Any] = {**LONG, "model": "gemma-7b", "tp": 8, "micro_batch": 8, "recompute": "full"}
OFFLOADED: dict[str, Any] = {"model": "llama-7b", "gpus": 8, "zero": 2}
DRIVES: dict[str, Any] = {"model": "llama-3-8b", "gpus": 8, "zero": 3, "framework": "deepspeed",
                          "offload": "parameters,optimizer", "offload_to": "nvme"}  # fmt: skip
ALL_TO_ALL: dict[str, Any] = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 16, "ep": 8, "zero": 1, "seq": 4096,
                              "global_batch": 64}  # fmt: skip
GIANT: dict[str, Any] = {"model": "llama-3.1-405b", "gpu": "h100-sxm", "gpus": 16384, "tp": 8, "pp": 16, "zero": 1,
                         "seq": 7424, "global_batch": 2048}  # fmt: skip

TOO_BIG = [
    ({**SMALL, "pp": 4, "schedule": "gpipe"}, {"schedule": "1f1b"}),
    ({**SMALL, "pp": 2, "schedule": "looped-bfs", "vpp": 2}, {"vpp": 1, "schedule": "1f1b"}),
    ({**SMALL, "pp": 2, "schedule": "looped-bfs", "vpp": 2}, {"schedule": "interleaved-1f1b"}),
    ({**WHOLE, "zero_group": 2}, {"zero_group": 16}),
    ({**LONG, "pp": 2, "stage_layers": "36,4"}, {"stage_layers": "20,20"}),
    ({**LOGITS, "loss_parallel": False}, {"loss_parallel": True}),
]  # fmt: skip
SLOW = [
    ({**OFFLOADED, "framework": "deepspeed", "offload": "optimizer"}, {"offload": "none"}),
    ({**OFFLOADED, "offload": "activations"}, {"offload": "none"}),
    ({**OFFLOADED, "offload": "activations", "offload_modules": "core_attn,attn_proj"}, {"offload": "none"}),
    (DRIVES, {"offload_to": "cpu"}),
    ({**DRIVES, "offload_to": "cpu", "gpu": "h200-sxm"}, {"offload": "none"}),
    ({**SMALL, "mlp_tiles": 8}, {}),
    ({**SMALL, "pp": 2, "stage_layers": "30,10"}, {"stage_layers": "balanced"}),
    ({**LONG, "tp": 4, "micro_batch": 2, "sequence_parallel": False}, {"sequence_parallel": True}),
    ({**SMALL, "no_sync": False}, {"no_sync": True}),
    ({**SMALL, "dp_comm_overlap": False}, {"dp_comm_overlap": True}),
    ({**SMALL, "tp_comm_overlap": False}, {"tp_comm_overlap": True}),
    ({**WHOLE, "gpus": 64, "zero_group": 8}, {"zero_group": 32}),
    ({**SMALL, "pp": 4, "schedule": "naive"}, {"schedule": "1f1b"}),
    ({**WHOLE, "zero": 0, "tp": 4, "sync": "local-sgd"}, {"sync": "allreduce"}),
]  # fmt: skip


def typed(stated: dict[str, Any], options: dict[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    """The job's options with what advice says to add and to leave out."""
    return {name: value for name, value in {**stated, **options}.items() if name not in without}


def batch(layout: Any) -> int:
    return int(layout.micro_batch * layout.micro_batches * layout.dp)


@pytest.mark.parametrize(("stated", "expected"), TOO_BIG, ids=lambda one: str(one)[-40:])
def test_a_stated_setting_that_fills_memory_is_put_back(stated: dict[str, Any], expected: dict[str, Any]) -> None:
    report = distsim.memory(**stated)
    assert not report.fits
    mends = distsim.advise(report)
    assert expected in [one.shown for one in mends]
    told = distsim.advise(distsim.step(**stated))
    assert expected in [one.options for one in told]
    for one in mends:
        again = distsim.memory(**typed(stated, one.shown, one.without))
        assert again.peak == one.report.peak and again.fits and again.setup.layout.global_batch == one.global_batch
    for quick in told:
        same = distsim.step(**typed(stated, quick.options, quick.without))
        assert same.seconds == pytest.approx(quick.seconds, rel=1e-9) and same.memory.peak == quick.peak


@pytest.mark.parametrize(("stated", "expected"), SLOW, ids=lambda one: str(one)[-40:])
def test_a_stated_setting_that_takes_time_is_put_back(stated: dict[str, Any], expected: dict[str, Any]) -> None:
    report = distsim.step(**stated)
    told = distsim.advise(report)
    assert expected in [one.options for one in told]
    for one in told:
        again = distsim.step(**typed(stated, one.options, one.without))
        assert again.seconds == pytest.approx(one.seconds, rel=1e-9) and again.memory.peak == one.peak
        assert again.memory.fits and one.gain > 0 and again.setup.layout.gpus == report.setup.layout.gpus
        assert batch(again.setup.layout) == batch(report.setup.layout)


def test_what_is_left_out_is_named_with_the_options() -> None:
    """Columns of words go where a terminal is narrow, and no value turns some settings off."""
    report = distsim.step(**SMALL, mlp_tiles=8)
    told = distsim.advise(report)
    assert told[0].without == ("mlp_tiles",) and not told[0].options
    assert "without --mlp-tiles" in "\n".join(quicker_lines(report, told, style()))
    wider = distsim.memory(**LONG, pp=2, stage_layers="36,4")
    (mend,) = (one for one in distsim.advise(wider) if "pp" in one.shown)
    assert mend.without == ("stage_layers",) and mend.to_dict()["without"] == ["stage_layers"]


def test_each_kind_and_all_come_back_from_the_host_or_from_drives_to_it() -> None:
    found = [(one.options, one.name) for one in restored(resolve(Job.read(DRIVES)))]
    assert found == [(options, OFFLOADING) for options in (
        {"offload_to": "cpu"}, {"offload": "none", "offload_to": None}, {"offload": "parameters"},
        {"offload": "optimizer"},
    )]  # fmt: skip
    layers = {**OFFLOADED, "framework": "megatron-core", "offload": "optimizer,activations", "offload_to": "cpu",
              "zero": 1, "offload_modules": "core_attn"}  # fmt: skip
    (nothing, states, modules) = (one.options for one in restored(resolve(Job.read(layers))))
    assert nothing == {"offload": "none", "offload_to": None, "offload_modules": None}
    assert states == {"offload": "activations"} and modules == {"offload": "optimizer", "offload_modules": None}


def test_settings_that_nobody_stated_cost_nothing() -> None:
    assert not list(restored(resolve(Job.read(SMALL))))
    assert not list(restored(resolve(Job.read({**SMALL, "sequence_parallel": True, "no_sync": True}))))
    replicas = {**WHOLE, "zero": 1, "zero_group": 4, "sync": "local-sgd", "sync_every": 100}
    assert not any(one.name == "zero_group" for one in restored(resolve(Job.read(replicas))))


def test_a_change_that_does_not_fit_is_told_with_one_that_frees_memory() -> None:
    """44% of the step are a bubble that eight chunks would fill, had they the memory."""
    report = distsim.step(**GIANT)
    assert not distsim.step(**GIANT, vpp=8).memory.fits
    told = distsim.advise(report)
    assert told[0].options == {"vpp": 8, "cp": 2} and told[0].gain > 1.5 * told[1].gain
    again = distsim.step(**GIANT, **told[0].options)
    assert again.seconds == pytest.approx(told[0].seconds, rel=1e-9) and again.memory.fits
    assert batch(again.setup.layout) == batch(report.setup.layout)


def test_few_pairs_are_computed() -> None:
    class Chunks:
        kind, words = "vpp", "chunks"

        def __init__(self, count: int) -> None:
            self.options = {"vpp": count}

    asked = []

    def resolved(options: dict[str, Any]) -> Setup | None:
        asked.append(options)
        return None

    many = [Chunks(count) for count in range(2, 20)]
    assert not list(pairs(resolve(Job.read(GIANT)), many, resolved))
    assert len(asked) == MOST_PAIRS and all(len(options) > 1 for options in asked)


def test_many_gpus_end_with_the_search_of_all_layouts(capsys: pytest.CaptureFixture[str]) -> None:
    job = {"model": "llama-2-7b", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "pp": 2, "dp_comm_overlap": False}
    last = " ".join(" ".join(searched(resolve(Job.read(job)), style())).split())  # folded where a terminal is narrow
    expected = "distsim search llama-2-7b --gpu h100-sxm --gpus 64 --global-batch 4 --no-dp-comm-overlap"
    assert last == f"All layouts, ranked: {expected}"
    assert run(shlex.split(expected)[1:]) == 0
    assert "best by throughput" in " ".join(capsys.readouterr().out.split())
    assert not searched(resolve(Job.read({**job, "gpus": 16})), style())
