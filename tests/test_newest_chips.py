"""Chips of 2026 that hardly anybody has measured: what stands for them, and what is said of it."""

import csv

import pytest

from distsim import catalog
from distsim.engine.jobs.resolve import resolve
from distsim.engine.networks.links import network_for
from distsim.engine.step import step_of
from distsim.specs.accelerator import Accelerator
from distsim.specs.job import Job
from distsim.units import GIGA, TERA

NEWEST = ("vr200", "rubin-sxm", "mi455x")
JOB = Job(model="llama-3.1-8b", gpus=8, framework="megatron-core", micro_batch=2, global_batch=64, seq=8192)


def chip(name: str) -> Accelerator:
    found: Accelerator = catalog.load("gpus", name)
    return found


@pytest.mark.parametrize("name", NEWEST)
def test_what_stands_for_a_chip_is_told_and_its_interval_is_that_of_unfitted_chips(name: str) -> None:
    report = step_of(resolve(JOB.model_copy(update={"gpu": name})))
    like = chip(name).treated_like
    assert any(f"treated like {like}" in note for note in report.notes)
    known = step_of(resolve(JOB.model_copy(update={"gpu": {"blackwell": "gb300", "cdna4": "mi355x"}[like]})))
    wider = report.interval.high / report.seconds / (known.interval.high / known.seconds)
    assert wider > 1.05 if like == "blackwell" else wider == pytest.approx(1)  # no run on CDNA 4 is fitted either
    assert report.seconds < known.seconds


@pytest.mark.parametrize(("name", "per_clock"), [("vr200", 8192), ("rubin-sxm", 8192), ("mi455x", 8192)])
def test_units_at_their_highest_clock_reach_the_peak_of_16_bits(name: str, per_clock: int) -> None:
    found = chip(name)
    assert found.peak.bf16 is not None and found.chip.units is not None and found.chip.clock is not None
    most = found.chip.units * found.chip.clock * per_clock
    assert 0.88 <= found.peak.bf16 / most <= 1.01


def test_a_rack_adds_up_to_what_its_vendor_says() -> None:
    rack, gpu = catalog.load("clusters", "vr200-nvl72"), chip("vr200")
    assert rack.domain * gpu.memory == pytest.approx(72 * 288 * 2**30)
    assert rack.domain // rack.gpus_per_node == 18
    assert rack.domain * (gpu.peak.fp4 or 0) == pytest.approx(2520e15)  # 2.5 EFLOP/s for training in NVFP4
    helios, amd = catalog.load("clusters", "mi455x-helios"), chip("mi455x")
    assert helios.domain * (amd.peak.fp4 or 0) == pytest.approx(2.9e18, rel=0.01)
    assert helios.domain * helios.fabric.rate * 2 == pytest.approx(260 * TERA, rel=0.01)
    assert helios.domain * amd.bandwidth == pytest.approx(1.7e15, rel=0.02)
    assert catalog.load("clusters", "tpu-8t-pod").domain * (chip("tpu-8t").peak.fp4 or 0) == pytest.approx(
        121e18, rel=0.01
    )


def test_links_that_nobody_measured_have_the_factors_of_those_they_are_like() -> None:
    newest, known = network_for("vr200"), network_for("gb300")
    assert newest.intra == "nvlink-6-rack" and known.intra == "nvlink-5-rack"
    for family in ("all_reduce", "direct"):
        assert newest.factors[f"{newest.intra}/{family}"] == known.factors[f"{known.intra}/{family}"]
    assert newest.intra_rate == pytest.approx(known.intra_rate * 1500 / 900)
    assert network_for("mi455x").backend == "rccl" and network_for("mi455x").intra_rate == pytest.approx(1350 * GIGA)


def test_early_runs_are_slower_than_told_by_what_the_chip_s_note_says() -> None:
    with catalog.path("runs", "unseen").open(newline="", encoding="utf-8") as table:
        rows = [row for row in csv.DictReader(table) if row["gpu"] == "vr200"]
    slower = sorted(1 / float(row["first_predicted_over_measured"]) for row in rows)
    assert f"{len(rows)} runs" in chip("vr200").off
    assert f"{slower[0]:.1f} to {slower[-1]:.1f} times" in chip("vr200").off
