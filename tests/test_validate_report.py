"""Tables of ``distsim validate`` on terminals of any width: names and numbers stay whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import piped

from distsim.engine.evidence import replay
from distsim.engine.validate import Summary, Validation
from distsim.interop.runs import read_runs
from distsim.report.console import console
from distsim.report.validate import WIDEST_NAME, summaries_table, times_table

NAMES = ["megatron-deepspeed", "ScaleTorch (picotron-like)", "fsdp"]
HEADERS = {
    "timed", "rows", "skipped", "with", "memory", "median", "error", "90th", "percentile", "bias", "in", "90%",
    "interval",
}  # fmt: skip


def one(median: float | None = 0.012) -> Summary:
    return Summary(2920, 130, 2870, median, 2.651, -0.266, 1.0, 1230, median, 0.126, -0.006)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_names_and_headers_of_scores_are_not_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for made in (times_table, summaries_table):
        console().print(made("by framework", {name: one() for name in NAMES}))
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert max(map(len, lines)) <= width
        for name in NAMES:
            (line,) = [line for line in lines if line.startswith(name)]
            assert "1.2%" in line
        rule = next(index for index, line in enumerate(lines) if line.startswith("─"))
        assert {word for line in lines[1:rule] for word in line.split()} <= HEADERS


def test_long_names_give_way_to_figures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "GPT 6.2B (zero bubble paper) of many words"
    assert len(name) > WIDEST_NAME
    console().print(times_table("by model", {name: one(None)}))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert " - " in out and "100.0%" in out and "2870" in out


ROWS = "id,model,gpu,n_gpus,micro_batch,seq_len,step_time_s,mem_peak_gb_per_gpu\n"


def test_remarks_name_the_first_of_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = ["a,llama-7b,h100-sxm,8,1,2048,0.5,40", "b,llama-7b,h100-sxm,8,1,,0.5,40", "c,llama-8b,h100-sxm,8,,,,9",
            "d,llama-7b,h100-sxm,8,1,,0.5,40", "e,llama-7b,h100-sxm,8,1,2k,0.5,40"]  # fmt: skip
    path.write_text("framework," + ROWS + "\n".join(f"fsdp,{row}" for row in rows))
    told = [line.split() for line in piped("validate", str(path), COLUMNS="100").stdout.splitlines()]
    assert ["2", "b", "seq_len", "is", "blank"] in told
    assert any(words[:2] == ["1", "c"] for words in told)
    assert ["1", "e", "seq_len", "'2k'", "read", "as", "2,048"] in told


def test_sizes_that_nothing_measures_count_as_blank(tmp_path: Path) -> None:
    """1e300 seconds once made columns of 300 digits."""
    path = tmp_path / "mine.csv"
    cells = (("1e300", "40"), ("1e-300", "40"), ("0.5", "1e30"), ("0.5", "1e-30"), ("1e12", "40"), ("0.5", "1e-8"))
    rows = [f"r{at},llama-7b,h100-sxm,8,1,2048,{time},{peak}" for at, (time, peak) in enumerate(cells)]
    path.write_text(ROWS + "\n".join(rows) + "\n")
    for width in (80, 140):
        ran = piped("validate", str(path), COLUMNS=str(width))
        assert ran.returncode == 0 and max(map(len, ran.stdout.splitlines())) <= 140
    said = Validation(tuple(map(replay, read_runs(path)))).odd
    assert [line for line in said if "1e300" in line] == [
        "line 2: step_time_s '1e300' is not a measurable number above 0: treated as blank"
    ]
    assert sum("measurable" in line for line in said) == 4
    seven = [replay(run) for run in read_runs(path)[:1] * 7]
    for many, rest in ((6, "1 more cell is invalid"), (7, "2 more cells are invalid")):
        assert rest in Validation(tuple(seven[:many])).odd
