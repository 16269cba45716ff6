"""What docs/step.md, search.md, finetuning.md and evidence.md say of runs: python benchmarks/replays.py --docs

The shipped runs are replayed as `distsim validate` and `distsim validate --unseen` do it, and each table is printed, or
with --docs written between its marks: `<!-- replays: NAME -->` and `<!-- end -->`.

What fits say of runs that they did not see takes minutes, so that it is kept in benchmarks/left_out.json. With --fits
nothing is replayed: the shipped runs are fitted, and presets/timing written as `distsim calibrate` does it, and that
file. `make calibrate` does both, one after the other.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from distsim import catalog
from distsim.engine.evidence import Replay, quantile
from distsim.engine.fitting.others import as_strange
from distsim.engine.ranking import Timed, ranking_of
from distsim.engine.ranking import timed as ranked_times
from distsim.engine.single_changes import gains_of, kept_of, summed
from distsim.engine.steps.intervals import ELSEWHERE, FEW_SOURCES, MOVED, PACES, RESIDUALS, moved_name
from distsim.engine.validate import Summary, group_name, shipped_runs, summarise, unseen_runs, validate_file
from distsim.interop.runs import read_runs
from distsim.units import GIB

ROOT = Path(__file__).parent.parent
KEPT = Path(__file__).with_name("left_out.json")
MARK = re.compile(r"(<!-- replays: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
HOW = "python benchmarks/replays.py --docs"
HOW_FITTED = f"python benchmarks/replays.py --fits (minutes), then {HOW}; make calibrate does both"
ADAPTERS = ("lora", "qlora")
ODD_SOURCE = "vinjn/nanotron-ultrascale-playbook"
SUMMED_SOURCE, NODE = "VIA-Research/vTrain", 8
FAMILIES = {"megatron": "Megatron and its relatives", "torch": "plain torch and its trainers", "jax": "JAX"}

Kept = dict[str, Any]
Rows = list[list[str]]


def percent(value: float | None, digits: int = 1, sign: str = "") -> str:
    """A share as the tables have it; nothing where there is none."""
    return "" if value is None else f"{round(value, digits + 2) + 0.0:{sign}.{digits}%}"


def table(head: Sequence[str], rows: Rows, words: int = 1) -> str:
    """Markdown, numbers to the right; the first ``words`` columns are text."""
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def grouped(replays: Iterable[Replay], key: Callable[[Replay], Any]) -> dict[Any, list[Replay]]:
    """Replays by what ``key`` says of them, the largest group first."""
    found: dict[Any, list[Replay]] = defaultdict(list)
    for one in replays:
        found[key(one)].append(one)
    return dict(sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0])))


def timed(replays: Iterable[Replay]) -> list[Replay]:
    """Those with a step time to hold against the prediction."""
    return [one for one in replays if one.error is not None]


def by_source(replays: Iterable[Replay]) -> dict[str, Summary]:
    """Summaries of sources with step times."""
    groups = grouped(timed(replays), lambda one: group_name(one.run, "source"))
    return {name: summarise(members) for name, members in groups.items()}


def fingerprint() -> str:
    """Of the fitted numbers, whatever day they were written."""
    lines = catalog.path("timing", "fitted").read_text(encoding="utf-8").splitlines()
    told = "\n".join(line for line in lines if not line.startswith("checked"))
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def kept() -> Kept:
    """What fits said of runs left out."""
    found: Kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def keep(**known: Any) -> None:
    """Write some of it, as of these fitted numbers."""
    told = {name: {"fitted": fingerprint(), **one} for name, one in known.items()}
    before = kept() if KEPT.exists() else {}
    KEPT.write_text(json.dumps({**before, **told}, indent=1) + "\n", encoding="utf-8")


def fit() -> None:
    """Fit the shipped runs and keep what is said of those left out."""
    from distsim.engine.fitting.runs import calibrate

    found = calibrate([shipped_runs()], ROOT / "presets" / "timing", mine=False)
    errors: dict[str, list[float]] = defaultdict(list)
    for example, residual in zip(found.examples, found.source_out, strict=True):
        errors[example.source].append(math.expm1(residual))
    scores = {name: one._asdict() for name, one in found.scores.items()}
    others = {name: some for name, some in errors.items() if name != ODD_SOURCE}
    scores["whole sources left out, but nanotron's"] = errors_of(others)
    sources = {name: [statistics.median(map(abs, some)), statistics.median(some)] for name, some in errors.items()}
    off = {one.id: residual for one, residual in zip(found.examples, found.source_out, strict=True)}
    runs = [one for one in ranked_times(validate_file(shipped_runs()).replays) if one.run.id in off]
    told = [one._replace(predicted_seconds=one.measured_seconds * math.exp(off[one.run.id])) for one in runs]
    keep(fits={"scores": rounded(scores), "sources": rounded(sources), "ranked": ranked(told)})


def errors_of(errors: dict[str, list[float]]) -> dict[str, float]:
    """As ``engine/fitting/write.py`` scores runs."""
    every = [abs(one) for some in errors.values() for one in some]
    means = [statistics.median(map(abs, some)) for some in errors.values()]
    return {"runs": len(every), "median": statistics.median(every), "p90": quantile(every, 0.9),
            "source_mean": statistics.fmean(means)}  # fmt: skip


def rounded(told: Any) -> Any:
    """To five digits after the point, so that files differ only where figures do."""
    if isinstance(told, dict):
        return {name: rounded(one) for name, one in told.items()}
    if isinstance(told, list):
        return [rounded(one) for one in told]
    return round(told, 5) if isinstance(told, float) else told


def scored(replays: Sequence[Replay]) -> dict[str, Any]:
    """One line of the table of replays."""
    told = summarise(replays)
    medians = [one.median_abs_error for one in by_source(replays).values() if one.median_abs_error is not None]
    line = {"runs": told.timed_rows, "median": told.median_abs_error, "p90": told.p90_abs_error,
            "source_mean": statistics.fmean(medians), "covered": told.interval_coverage,
            "sources": len(medians)}  # fmt: skip
    return {name: rounded(one) for name, one in line.items()}


def ranked(runs: Iterable[Timed]) -> dict[str, Any]:
    """How well the layouts of these runs are ranked."""
    told = ranking_of(runs)
    assert told is not None
    return {name: rounded(one) for name, one in told._asdict().items()}


def layouts(replays: Sequence[Replay], known: Kept) -> str:
    """Searches: how well measured layouts of the same job are ranked."""
    told = ranked_times(replays)
    others = [one for one in told if one.run.source != ODD_SOURCE]
    names = {"one run left out at a time": ranked(told), "of these, but nanotron's": ranked(others),
             "whole sources left out": known["fits"]["ranked"],
             "sources that nothing was fitted to": known["unseen"]["ranked"]}  # fmt: skip
    rows = [[name, f"{one['jobs']}", f"{one['runs']:,}", f"{one['tau']:.2f}", f"{one['pairs_tau']:.2f}",
             percent(one["regret_median"]), percent(one["regret_p90"])] for name, one in names.items()]  # fmt: skip
    head = ["predictions of", "jobs", "runs", "tau, mean of jobs", "tau of all pairs", "slower than the best, median",
            "90th percentile"]  # fmt: skip
    return table(head, rows)


def changed(replays: Sequence[Replay]) -> dict[str, Any]:
    """What became of gains that were predicted for single changes, of each setting and of all."""
    gains = gains_of(replays)
    every = {**kept_of(gains), "all": summed(gains)}
    return {name: {key: rounded(value) for key, value in one._asdict().items()} for name, one in every.items()}


def changes(known: Kept) -> str:
    """Searches and advice: what single changes gained in runs of sources that nothing was fitted to."""
    rows = [[name.replace("_", "-"), *(f"{one[key]}" for key in ("sources", "pairs", "large")),
             percent(one["large_faster"], 0), *(percent(one[key], 0) for key in ("large_promised", "large_kept")),
             percent(one["small_faster"], 0)] for name, one in known["unseen"]["changes"].items()]  # fmt: skip
    head = ["what changes", "sources", "pairs", "of which 10% or more are predicted", "faster", "predicted, median",
            "measured, median", "faster of the others"]  # fmt: skip
    return table(head, rows)


def fits(known: Kept) -> str:
    """Step times: what fits say of the runs that they saw and did not see."""
    scores, sources = known["fits"]["scores"], known["fits"]["sources"]
    rows = [[name, f"{one['runs']:,}", *(percent(one[key]) for key in ("median", "p90", "source_mean"))]
            for name, one in scores.items()]  # fmt: skip
    told = f"On the {scores['after: fitted']['runs']:,} shipped runs that are fitted, {len(sources)} sources:"
    return f"{told}\n\n{table(['', 'runs', 'median', '90th percentile', 'mean of source medians'], rows)}"


def replayed(replays: Sequence[Replay], known: Kept) -> str:
    """Step times: shipped runs as `distsim validate` tells them."""
    names = {"one run left out at a time (`distsim validate`)": scored(replays),
             **{f"of these, {words}": scored(some) for words, some in _summed(replays).items()},
             "sources that nothing was fitted to (`distsim validate --unseen`)": known["unseen"]}  # fmt: skip
    rows = [[name, f"{one['runs']:,}", str(one["sources"]),
             *(percent(one[key]) for key in ("median", "p90", "source_mean", "covered"))]
            for name, one in names.items()]  # fmt: skip
    head = ["", "runs", "sources", "median", "90th percentile", "mean of source medians", "inside their intervals"]
    return table(head, rows)


def _summed(replays: Sequence[Replay]) -> dict[str, list[Replay]]:
    """The data set whose times of single nodes are sums, not measurements, by what they are."""
    some = [one for one in replays if one.run.source == SUMMED_SOURCE]
    alone = [(one.run.number("n_gpus") or 0) <= NODE for one in some]
    told = {"vTrain's on one node": True, "vTrain's on several": False}
    return {words: [one for one, it in zip(some, alone, strict=True) if it is asked] for words, asked in told.items()}


def sources(replays: Sequence[Replay], known: Kept) -> str:
    """Step times by source."""
    rows = []
    for name, one in by_source(replays).items():
        out = known["fits"]["sources"].get(name, (None, None))
        rows += [[name, str(one.timed_rows), percent(one.median_abs_error), percent(one.p90_abs_error),
                  percent(out[0], 0), percent(out[1], 0, "+")]]  # fmt: skip
    head = ["source", "runs", "one run left out", "its 90th percentile", "whole source left out", "bias then"]
    return table(head, rows)


def intervals() -> str:
    """Step times of jobs of no known source: what 90% of comparable runs took."""
    kinds = f"groups.{ELSEWHERE}", f"groups.{MOVED}"
    groups = catalog.tables("timing", RESIDUALS, lambda name: name.startswith(kinds))["groups"]
    rows, above = [], ""
    for pace, least in PACES.items():
        share = f"{least:.0%}{above or ' and more'}" if least else f"below{above.removeprefix(' to')}"
        above = f" to {least:.0%}"
        kinds = {f"{pace} fitted {family}": words for family, words in FAMILIES.items()}
        for group, words in {**kinds, f"{pace} fitted": "all", pace: "all, on any chip"}.items():
            one = groups.get(f"{ELSEWHERE} {group}")
            if one and one["sources"] >= FEW_SOURCES:
                rows += [[share, words, *spread_of(one)]]
    for word, words in (("similar", "yours, near a run of yours"), ("unlike", "yours, unlike all runs of yours")):
        rows += [["any", words, *spread_of(groups[moved_name(word)])]]
    return table(["products take", "frameworks", "runs", "sources", "times the prediction"], rows, 2)


def spread_of(group: dict[str, Any]) -> list[str]:
    """How many runs of how many sources a group has, and what multiples of the prediction hold 90% of them."""
    ends = f"{math.exp(-group['over']):.2f} to {math.exp(group['under']):.2f}"
    return [f"{group['runs']:,}", str(group["sources"]), ends]


def adapters(replays: Sequence[Replay]) -> str:
    """Fine-tuning: runs that train adapters."""
    some = [one for one in replays if one.run.text("finetune_kind") in ADAPTERS]
    rows = []
    for (source, kind), members in grouped(some, lambda one: (one.run.source, one.run.text("finetune_kind"))).items():
        one = summarise(members)
        if one.timed_rows or one.memory_rows:
            rows += [[source, kind, str(one.timed_rows or ""), percent(one.median_abs_error),
                      str(one.memory_rows or ""), percent(one.memory_median_abs_error)]]  # fmt: skip
    told = f"{len(some)} shipped runs train adapters; {sum(not one.reason for one in some)} are predicted."
    head = ["source", "adapters", "step times", "median error", "peaks", "median error"]
    return f"{told}\n\n{table(head, rows, 2)}"


def mlperf(replays: Sequence[Replay]) -> str:
    """Fine-tuning: peaks of MLPerf's Llama 2 70B in fp8, by the GPUs that share a sequence."""
    some = [one for one in replays if one.run.source.startswith("mlcommons/") and one.memory_error is not None]
    some = [one for one in some if one.run.text("finetune_kind") in ADAPTERS]
    rows = []
    for (gpus,), members in sorted(grouped(some, lambda one: (one.setup.layout.cp if one.setup else 0,)).items()):
        peaks = ([one.measured_peak or 0 for one in members], [one.predicted_peak or 0 for one in members])
        rows += [[str(gpus), str(len(members)), *map(ends, peaks)]]
    return table(["GPUs per sequence", "runs", "measured GiB", "predicted GiB"], rows)


def ends(sizes: Sequence[float]) -> str:
    """The smallest and the largest."""
    low, high = (f"{one / GIB:.1f}" for one in (min(sizes), max(sizes)))
    return low if low == high else f"{low} to {high}"


def peaks(strange: Sequence[Replay], replays: Sequence[Replay]) -> str:
    """Peak memory by source and framework, and what other runs of the sources make of it."""
    some, told = ([one for one in each if one.memory_error is not None] for each in (strange, replays))
    names = grouped(some, lambda one: (one.run.source, one.setup.framework.name if one.setup else ""))
    rows = [[*name, *_peaks(members)] for name, members in names.items()]
    head = ["source", "framework", "runs", "median", "90th percentile", "bias"]
    every = ["all", "", *_peaks(some)], ["all, corrected by other runs of their source", "", *_peaks(told)]
    return table(head, [*rows, *every], 2)


def _peaks(members: Sequence[Replay]) -> list[str]:
    one = summarise(members)
    figures = (percent(one.memory_median_abs_error), percent(one.memory_p90_abs_error))
    return [str(one.memory_rows), *figures, percent(one.memory_bias, 1, "+")]


def pages(replays: Sequence[Replay], strange: Sequence[Replay], known: Kept) -> dict[str, dict[str, str]]:
    """By page, its tables by their marks; peaks are those of ``strange`` replays, which no other run corrects."""
    return {
        "step": {"fits": fits(known), "replays": replayed(replays, known), "sources": sources(replays, known),
                 "intervals": intervals()},
        "search": {"ranking": layouts(replays, known), "changes": changes(known)},
        "finetuning": {"adapters": adapters(strange), "mlperf": mlperf(strange)},
        "evidence": {"peaks": peaks(strange, replays)},
    }  # fmt: skip


def with_tables(text: str, tables: dict[str, str]) -> str:
    """A page with these tables between its marks."""
    return MARK.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", text)


def main(words: Sequence[str]) -> None:
    """Fit, or replay and print or write."""
    if "--fits" in words:
        fit()
        return
    replays = validate_file(shipped_runs()).replays
    strange = as_strange(replays, read_runs(shipped_runs()))
    others = validate_file(unseen_runs()).replays
    unseen = {**scored(others), "ranked": ranked(ranked_times(others)), "changes": changed(others)}
    if "--docs" in words:
        keep(unseen=unseen)
    for name, tables in pages(replays, strange, {**kept(), "unseen": unseen}).items():
        page = ROOT / "docs" / f"{name}.md"
        if "--docs" in words:
            page.write_text(with_tables(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
        else:
            print(*(f"docs/{name}.md, {mark}:\n\n{told}\n" for mark, told in tables.items()), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
