"""Failures and checkpoints: counts of published runs, closed form against Monte-Carlo, and what must rise with what."""

from __future__ import annotations

import csv
import math
import random
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from distsim import catalog
from distsim.engine.campaigns.pace import campaign_ends, campaign_pace, pace_source
from distsim.engine.figures import Figures
from distsim.engine.plans.campaign import simulate
from distsim.engine.plans.goodput import Checkpoint, Goodput, Policy, goodput, rate_per_gpu_hour
from distsim.engine.plans.repairs import repair_note
from distsim.errors import DistsimError
from distsim.formulas import goodput as forms
from distsim.formulas.step import largest_deviation
from distsim.units import DAY, HOUR, MINUTE

# whole_runs.csv, failures.csv: figures as published, each row with its source
ORACLES = Path(__file__).parent / "oracles"
LLAMA_3 = {"gpus": 16_384, "parameters": 405_849_243_648, "days": 54}


def rows(cluster: str) -> list[dict[str, str]]:
    with (ORACLES / "failures.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["cluster"] == cluster]


def llama_3(failures: str = "llama-3", **policy: object) -> Goodput:
    """14 bytes per parameter, a sixteenth of a node's copy per GPU, PCIe 5, to the storage of that run."""
    total = LLAMA_3["parameters"] * 14.0
    checkpoint = Checkpoint(total, total / LLAMA_3["gpus"], 55e9)
    chosen = Policy(pauses_per_day=47 / 54, **policy)  # type: ignore[arg-type]
    return goodput(
        LLAMA_3["gpus"], catalog.load("failures", failures), checkpoint, catalog.load("storage", "tectonic"), chosen
    )


def poisson_interval(count: int) -> tuple[float, float]:
    """95 % interval of a Poisson mean, by the normal approximation with continuity (Byar)."""
    low = count * (1 - 1 / (9 * count) - 1.96 / (3 * math.sqrt(count))) ** 3
    more = count + 1
    return low, more * (1 - 1 / (9 * more) + 1.96 / (3 * math.sqrt(more))) ** 3


def work_of_days(terms: Goodput, days: float) -> float:
    return days * DAY / terms.stretch


def test_presets_say_what_the_published_table_says() -> None:
    table = {row["kind"]: row for row in rows("Meta Llama 3 405B")}
    preset = catalog.load("failures", "llama-3")
    assert (preset.unplanned, preset.planned) == (419, 47)
    assert preset.unplanned + preset.planned == int(table.pop("total")["count"])
    assert sorted(preset.kinds.values()) == sorted(int(row["count"]) for row in table.values())
    for name, cluster in (("rsc-1", "Meta RSC-1"), ("rsc-2", "Meta RSC-2")):
        stated = float(rows(cluster)[0]["count"]) / 1000
        assert catalog.load("failures", name).per_node_day == pytest.approx(stated)


@pytest.mark.parametrize("failures", ["llama-3", "default"])  # the default's rate comes from elsewhere
def test_interruptions_of_llama_3_within_the_poisson_interval(failures: str) -> None:
    terms = llama_3(failures)
    low, high = poisson_interval(419)
    work = work_of_days(terms, LLAMA_3["days"])
    expected = terms.interruptions(work) / terms.planned_stretch
    assert low <= expected <= high
    assert low <= simulate(terms, work, 1000).failures.mean() <= high


@pytest.mark.parametrize(
    "policy", [{}, {"asynchronous": False}, {"interval_seconds": 10 * MINUTE}, {"least_interval_seconds": 0.0}]
)
def test_effective_training_time_of_llama_3(policy: dict[str, object]) -> None:
    """Published: over 90%. Checkpoints every five to ten minutes (or the optimum), 10 minutes to be back."""
    assert 0.90 <= llama_3(**policy).fraction <= 0.97


def test_hourly_checkpoints_would_have_cost_llama_3_its_ninety_per_cent() -> None:
    assert llama_3(interval_seconds=HOUR).fraction < 0.85


def test_job_failures_of_rsc_follow_from_its_nodes() -> None:
    """Kokolis et al. project 1.8 h at 16,384 GPUs and 0.23 h at 131,072 from 6.5 failures per 1,000 node-days."""
    rate = rate_per_gpu_hour(catalog.load("failures", "rsc-1"), Figures())
    assert forms.seconds_between_failures(16_384, rate) / HOUR == pytest.approx(1.80, abs=0.01)
    assert forms.seconds_between_failures(131_072, rate) / HOUR == pytest.approx(0.23, abs=0.01)


def test_bloom_checkpoint_takes_its_forty_seconds() -> None:
    write = forms.checkpoint_write_seconds(2.3e12, catalog.load("storage", "jean-zay").write_rate, 1e18)
    assert write == pytest.approx(40, rel=0.01)
    trillion = forms.checkpoint_write_seconds(13.8e12, catalog.load("storage", "selene").write_rate, 1e18)
    assert trillion == pytest.approx(13.8e12 / 273e9)


CASES = {
    "frequent failures": Goodput(8, 2 * HOUR, 20 * MINUTE, 30, 0, 10 * MINUTE, 0, 1, 1, Figures()),
    "asynchronous, slow drain": Goodput(8, 3 * HOUR, 20 * MINUTE, 5, 15 * MINUTE, 10 * MINUTE, 0, 1, 1, Figures()),
    "rare failures": Goodput(8, 20 * DAY, 1 * HOUR, 60, 60, 30 * MINUTE, 0, 1, 1, Figures()),
    "restart as long as the time between failures": Goodput(8, HOUR, 5 * MINUTE, 5, 0, HOUR, 0, 1.1, 1.05, Figures()),
}


def closed(case: Goodput) -> Goodput:
    stretch = forms.wall_over_work(
        case.interval, case.blocking, case.drain, case.restart, case.mean_time_between_failures
    )
    return Goodput(**{**vars(case), "failure_stretch": float(stretch)})


@pytest.mark.parametrize("name", CASES)
def test_monte_carlo_agrees_with_the_closed_form(name: str) -> None:
    terms = closed(CASES[name])
    work = 60 * DAY if terms.mean_time_between_failures > DAY else 20 * DAY
    began = time.process_time()
    seen = simulate(terms, work, 10_000, seed=1)
    took = time.process_time() - began
    assert seen.mean == pytest.approx(work * terms.stretch, rel=0.01)
    assert seen.failures.mean() == pytest.approx(terms.interruptions(work), rel=0.02)
    assert took < 2


def test_ten_thousand_campaigns_of_llama_3_take_less_than_two_seconds() -> None:
    terms = llama_3()
    work = work_of_days(terms, LLAMA_3["days"])
    began = time.process_time()
    seen = simulate(terms, work)
    assert time.process_time() - began < 2
    assert seen.mean == pytest.approx(work * terms.stretch, rel=0.01)
    assert seen.quantile(0.1) < seen.quantile(0.5) < seen.quantile(0.9)


def test_storage_that_nobody_describes_grows_between_a_floor_and_a_cap() -> None:
    given = [forms.assumed_storage_rate(gpus, 1e9, 5e9, 2e12) for gpus in (1, 100, 10_000)]
    assert given == [5e9, 100e9, 2e12]


def test_work_that_fits_an_interval_is_done_again_from_its_start() -> None:
    """Time until a life outlasts work of so long, after the first without a restart, by the exponential law."""
    work = restart = float(HOUR)
    mean, blocking = 2.0 * HOUR, 60.0
    terms = closed(Goodput(8, mean, 2 * HOUR, blocking, 0, restart, 0, 1, 1, Figures()))
    needed = work + blocking
    first, again = -math.expm1(-needed / mean), math.expm1((restart + needed) / mean)
    assert simulate(terms, work, 20_000).mean == pytest.approx(mean * first * (1 + again), rel=0.02)


def test_each_interval_that_is_begun_ends_in_a_checkpoint_where_nothing_fails() -> None:
    terms = Goodput(8, 1e15, HOUR, 60, 0, 600, 1, 1, 1, Figures())
    assert simulate(terms, 2.5 * HOUR, 3).seconds == pytest.approx(2.5 * HOUR + 3 * 60)


def test_waits_for_repairs_are_spread_as_chance_has_it() -> None:
    """Of campaigns that failed once, an exponential wait: as far from its mean as that is long."""
    terms = closed(Goodput(8, 2 * DAY, HOUR, 60, 0, 600, 0, 1, 1, Figures()))
    without, waiting = (simulate(replace(terms, waits=one, wait=HOUR), 2 * DAY) for one in (0.0, 1.0))
    waited = (waiting.seconds - without.seconds)[without.failures == 1]
    assert (waited.mean(), waited.std()) == (pytest.approx(HOUR, rel=0.1), pytest.approx(HOUR, rel=0.1))


def test_work_may_be_a_whole_number() -> None:
    terms = closed(CASES["frequent failures"])
    assert simulate(terms, 86_400, 10).mean > 86_400


def test_campaigns_are_reproducible() -> None:
    terms = closed(CASES["frequent failures"])
    first, again, other = (simulate(terms, 5 * DAY, 200, seed) for seed in (3, 3, 4))
    assert (first.seconds == again.seconds).all()
    assert (first.seconds != other.seconds).any()


def test_first_order_form_agrees_where_failures_are_rare() -> None:
    mean, interval, write, restart = 10 * DAY, HOUR, 20.0, 600.0
    exact = 1 / forms.wall_over_work(interval, write, 0.0, restart, mean)
    assert forms.expected_ettr(1, 1 / mean, restart, interval, write) == pytest.approx(exact, abs=1e-4)


def test_a_run_shorter_than_the_interval_is_saved_once() -> None:
    given = (8, catalog.load("failures", "default"), Checkpoint(1e12, 1e11, 55e9), catalog.load("storage", "default"))
    usual = goodput(*given, Policy())
    assert usual.checkpoints == math.inf
    for share, written in ((0.3, 1), (2.5, 3)):
        work = share * usual.interval
        terms = goodput(*given, Policy(), work_seconds=work)
        assert terms.interval == min(work, usual.interval) and terms.checkpoints == written
        assert simulate(terms, work, 2000).mean == pytest.approx(work * terms.stretch, rel=1e-3)


def test_daly_interval_is_the_best_one() -> None:
    mean, write, restart = 3 * HOUR, 60.0, 600.0
    best = forms.daly_interval_seconds(write, mean)
    lowest = forms.wall_over_work(best, write, 0.0, restart, mean)
    around = [forms.wall_over_work(best * factor, write, 0.0, restart, mean) for factor in (0.5, 0.8, 1.25, 2)]
    assert lowest <= min(around)
    assert best == pytest.approx(forms.young_interval_seconds(write, mean), rel=0.1)


@pytest.mark.parametrize(
    ("name", "rising"),
    [("blocking_seconds", 1), ("drain_seconds", 1), ("restart_seconds", 1), ("mean_time_between_failures", -1)],
)
def test_losses_rise_with_what_causes_them(name: str, rising: int) -> None:
    plain = {"interval_seconds": 600.0, "blocking_seconds": 20.0, "drain_seconds": 30.0, "restart_seconds": 300.0,
             "mean_time_between_failures": 7200.0}  # fmt: skip
    values = plain[name] * numpy.array([0.5, 1, 2, 4])
    losses = forms.wall_over_work(**{**plain, name: values})
    assert (numpy.diff(losses) * rising > 0).all()
    assert (losses > 1).all()


def waits_seen(mean: float, repair: float, spares: int, fixed: bool, seed: int = 0) -> tuple[float, float, float]:
    """Event by event: share of 40,000 failures that find no spare, how long these wait, and the share of time lost."""
    draw = random.Random(seed)
    now, waited, waits, failures, back = 0.0, 0.0, 0, 40_000, list[float]()  # back: when each node in repair is whole
    for _ in range(failures):
        now += draw.expovariate(1 / mean)
        back = [*(end for end in back if end > now), now + (repair if fixed else draw.expovariate(1 / repair))]
        if len(back) > spares:
            waits, waited, now = waits + 1, waited + min(back) - now, min(back)
            back.remove(now)
    return waits / failures, waited / waits, waited / now


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(("gpus", "spares"), [(128, 0), (512, 0), (512, 1), (8192, 2)])
def test_waits_for_repairs_are_those_of_an_event_simulation(gpus: int, spares: int, fixed: bool) -> None:
    """A failing node sees the others in repair; the job waits as a whole, and nothing fails meanwhile. How often, and
    how long on average over all failures, holds for repairs of any lengths (Erlang)."""
    mean, repair = 50_000 * HOUR / gpus, DAY
    share, wait, lost = waits_seen(mean, repair, spares, fixed)
    short, each = forms.spares_short_probability(repair / mean, spares), forms.repair_wait_seconds(repair, spares)
    assert share == pytest.approx(short, rel=0.05)
    assert wait == pytest.approx(each, rel=0.05)
    assert lost == pytest.approx(1 - 1 / forms.waiting_stretch(short, each, mean), rel=0.05)


def test_without_spares_every_failure_waits_for_its_repair() -> None:
    """512 GPUs fail once in 98 hours: a day of repair after each leaves 80%."""
    default = catalog.load("failures", "default")
    given = 512, default, Checkpoint(1e12, 1e9, 55e9), catalog.load("storage", "default")
    none, usual = goodput(*given, Policy(spares=0)), goodput(*given, Policy())
    assert none.waits == 1 and none.wait == default.repair
    assert none.fraction / usual.fraction == pytest.approx(1 / (1 + 24 * 512 / 50_000), rel=1e-3)
    assert none.interruptions(30 * DAY) == usual.interruptions(30 * DAY)
    campaigns = simulate(none, 60 * DAY, 2000)
    assert campaigns.mean == pytest.approx(60 * DAY * none.stretch, rel=0.01)


def test_spares_and_stragglers() -> None:
    assert forms.spares_short_probability(2.0, 40) == pytest.approx(0, abs=1e-12)
    loads, spares = numpy.array([0.0, 0.1, 4.0, 480.0]), numpy.array([0, 1, 9, 507])
    short = forms.spares_short_probability(loads, spares)
    assert short.tolist() == [forms.spares_short_probability(a, b) for a, b in zip(loads, spares, strict=True)]
    assert forms.usual_spares(loads).tolist() == [0, 2, 10, 507]
    draws = numpy.random.default_rng(0).normal(1, 0.02, (4000, 64)).max(axis=1).mean()
    assert forms.straggler_stretch(64, 0.02) == pytest.approx(draws, abs=0.002)
    assert forms.straggler_stretch(1, 0.02) == 1
    for workers, off in ((2, 0.06), (4, 0.02), (8, 0.01), (1024, 0.02)):
        draws = numpy.random.default_rng(0).normal(0, 1, (400_000 // workers, workers)).max(axis=1).mean()
        assert largest_deviation(workers) == pytest.approx(draws, rel=off)
    assert largest_deviation(1) == 0
    few, many = llama_3(spares=0), llama_3(spares=16)
    assert few.fraction < many.fraction


@pytest.mark.parametrize("name", ["llama-3", "rsc-1", "rsc-2", "bloom-176b"])
def test_presets_without_a_repair_time_have_the_usual_one(name: str) -> None:
    """Without one, no spares at all had been as good as ten, and none were counted."""
    counted, default = catalog.load("failures", name), catalog.load("failures", "default")
    assert counted.repair is None
    given = Checkpoint(1e12, 1e9, 55e9), catalog.load("storage", "default")
    none, few, usual = (goodput(8192, counted, *given, Policy(spares=spares)) for spares in (0, 3, None))
    assert none.wait == default.repair
    assert none.fraction < few.fraction < usual.fraction and none.fraction < 0.3
    assert usual.spares > few.spares
    stated = counted.model_copy(update={"repair": default.repair})
    assert goodput(8192, stated, *given, Policy(spares=3)).fraction == few.fraction
    assert repair_note(counted) and not repair_note(stated)


def test_spares_grow_with_the_cluster() -> None:
    """About one failure in a hundred finds none, however many nodes there are."""
    default = catalog.load("failures", "default")
    saved, storage = Checkpoint(1e12, 1e9, 55e9), catalog.load("storage", "default")
    kept = [goodput(gpus, default, saved, storage, Policy()) for gpus in (64, 1024, 8192, 65536)]
    assert [one.spares for one in kept] == sorted({one.spares for one in kept})
    for one in kept:
        in_repair = (default.repair or 0) / one.mean_time_between_failures
        assert forms.spares_short_probability(in_repair, one.spares) <= 0.01
        assert forms.spares_short_probability(in_repair, one.spares - 1) > 0.01
    assert kept[2].fraction > 0.95 > goodput(8192, default, saved, storage, Policy(spares=4)).fraction


def test_preemptions_add_to_failures() -> None:
    default = catalog.load("failures", "default")
    saved, storage = Checkpoint(1e12, 1e9, 55e9), catalog.load("storage", "default")
    policy = Policy(node_preempted_every=10 * DAY)
    plain, spot = (goodput(512, default, saved, storage, one, 8) for one in (Policy(), policy))
    expected = 1 / (1 / plain.mean_time_between_failures + 64 / (10 * DAY))
    assert spot.mean_time_between_failures == pytest.approx(expected)
    assert spot.spares == plain.spares  # whoever takes a node away does not repair it
    assert spot.wait_stretch == plain.wait_stretch


def test_a_blocking_checkpoint_pauses_for_its_write_by_definition() -> None:
    """MegaScale is cited for the pause of asynchronous ones only."""
    pauses = {
        way: next(one for one in llama_3(asynchronous=way).figures if one.label == "checkpoint pause")
        for way in (True, False)
    }
    assert "MegaScale" in pauses[True].source and "MegaScale" not in pauses[False].source
    assert pauses[False].value == pytest.approx(LLAMA_3["parameters"] * 14.0 / 2e12)


def test_every_term_has_a_source() -> None:
    labels = {figure.label for figure in llama_3().figures}
    assert {"failure rate", "time between failures", "checkpoint write", "checkpoint interval", "restart"} <= labels
    assert all(figure.source for figure in llama_3().figures)


@pytest.mark.parametrize(
    ("problem", "call"),
    [
        ("--spares: spare nodes -1", lambda: Policy(spares=-1)),
        ("--checkpoint-every: seconds between checkpoints 0", lambda: Policy(interval_seconds=0)),
        ("still being written when the next is due", lambda: llama_3(interval_seconds=1.0)),
        ("0 campaigns", lambda: simulate(closed(CASES["rare failures"]), DAY, 0)),
        ("-1 s of training", lambda: simulate(closed(CASES["rare failures"]), -1)),
        ("10,000 campaigns would fail", lambda: simulate(closed(CASES["frequent failures"]), 1e9)),
        ("0 GPUs", lambda: goodput(0, catalog.load("failures", "default"), Checkpoint(1, 1, 1),
                                   catalog.load("storage", "default"), Policy())),
    ],
)  # fmt: skip
def test_wrong_input_is_named(problem: str, call: object) -> None:
    with pytest.raises(DistsimError, match=problem):
        call()  # type: ignore[operator]


def test_intervals_of_campaigns_are_never_narrower_than_those_of_steps() -> None:
    low, high = campaign_ends(0.99, 1.01)
    assert low < 0.9 and high > 1.1
    assert campaign_ends(0.3, 4.0) == (0.3, 4.0)
    assert campaign_ends(0.3, 1.0) == (0.3, high)


def test_the_pace_of_campaigns_says_where_it_is_from() -> None:
    assert "whole runs in presets/runs/whole.csv" in pace_source(campaign_pace())
    assert "--pace" in pace_source(campaign_pace())
    assert pace_source(campaign_pace() + 0.1) == "--pace"


def test_stragglers_come_beside_the_usual_spread() -> None:
    """Step times hold the spread that GPUs usually have, so the option says that its own comes on top."""
    from distsim.cli.plan_request import LOSSES

    assert "on top of the usual one in step times" in LOSSES["stragglers"][1]


def test_a_restart_loads_over_the_links_that_there_are() -> None:
    failures, storage = catalog.load("failures", "llama-3"), catalog.load("storage", "tectonic")
    wide, narrow = (goodput(1024, failures, Checkpoint(1e12, 1e9, 50e9, rate), storage, Policy()).restart
                    for rate in (1e18, 1e9))  # fmt: skip
    assert narrow - wide == pytest.approx(1e12 / 1e9 - 1e12 / (storage.read_rate or storage.write_rate))


def test_dalys_interval_by_hand() -> None:
    """Equation 37 with a pause of half of the time between failures: 16 (1 + 1/6 + 1/36) - 8."""
    assert forms.daly_interval_seconds(8.0, 16.0) == pytest.approx(16 * 43 / 36 - 8)


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        ("hours_per_failure = 1e-300", "hours_per_failure 1e-300 is too small"),
        ("hours_per_failure = 1e300", "hours_per_failure 1e+300 is too large"),
        ('unplanned = 419\ngpus = 16\nwindow = "54 s"', "one every 0.00057 accelerator-hours, which is too often"),
        ('hours_per_failure = 5e4\nrepair = "3 years"', "repair '3 years' is too large"),
    ],
)
def test_failures_that_nobody_has_are_refused(rate: str, told: str, tmp_path: Path) -> None:
    """Spares for a failure every femtosecond were counted for ever."""
    file = tmp_path / "mine.toml"
    file.write_text(f'{rate}\n[source]\nother = "ours"\nchecked = 2026-11-01\n', encoding="utf-8")
    with pytest.raises(DistsimError, match=re.escape(told)):
        catalog.load("failures", str(file))
