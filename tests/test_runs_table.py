"""Tables of measured runs as people save them: marks, other delimiters, cells that are no numbers."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from distsim import catalog
from distsim.cli.app import run
from distsim.engine.validate import shipped_runs, unseen_runs
from distsim.errors import DistsimError
from distsim.interop.runs import Run, odd_cells, read_runs
from distsim.units import per_cent_meant

ROWS = [
    {"id": "a", "model": "llama-2-7b", "gpu": "h100-sxm", "n_gpus": "8", "step_time_s": "1.5"},
    {"id": "b", "model": "llama-2-7b", "gpu": "h100-sxm", "n_gpus": "16", "step_time_s": "2.5"},
]


def table(delimiter: str = ",", end: str = "\n", **changed: str) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list({**ROWS[0], **changed}), delimiter=delimiter, lineterminator=end)
    writer.writeheader()
    writer.writerows([{**ROWS[0], **changed}, ROWS[1]])
    return out.getvalue()


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "runs.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    "text",
    [
        table(),
        table(";"),
        table("\t"),
        table(end="\r\n"),
        table(";", "\r\n"),
        "sep=;\n" + table(";"),
        table().replace("id,model", "ID, Model"),
        table(";").replace("1.5", "1,5").replace("2.5", "2,5"),
        table() + ",,,,\n\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_spreadsheets_are_read(text: str, encoding: str, tmp_path: Path) -> None:
    runs = read_runs(written(tmp_path, text, encoding))
    assert [(one.id, one.count("n_gpus"), one.number("step_time_s")) for one in runs] == [("a", 8, 1.5), ("b", 16, 2.5)]


@pytest.mark.parametrize(
    ("text", "encoding", "told"),
    [
        ("", "utf-8", "empty"),
        ("id,model\nbörse,llama\n", "latin-1", "UTF-8"),
        ("id,model\n,\n", "utf-8", "no rows"),
        ("id,model,gpu,gpu\na,b,c,d\n", "utf-8", "'gpu' appears twice"),
        (
            "llama-7b,h100-sxm,8,8,1.42\n",
            "utf-8",
            "first row has no known column of runs .'llama-7b', 'h100-sxm', '8', …",
        ),
        ("llama-7b,1.42\nllama-7b,1.4\n", "utf-8", "start with a header row, e.g. model,gpu,n_gpus"),
        ("id,model\n", "utf-8", "no rows"),
        ("a,gpu\n1,2\n", "utf-8", "no column 'model'"),
    ],
)
def test_what_is_no_table_is_told(text: str, encoding: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(DistsimError, match=told):
        read_runs(written(tmp_path, text, encoding))


@pytest.mark.parametrize(
    ("read", "name", "cell"),
    [(Run.count, "n_gpus", "eight"), (Run.count, "n_gpus", "8.5"), (Run.positive, "step_time_s", "-3"),
     (Run.positive, "step_time_s", "nan"), (Run.positive, "step_time_s", "1,5"), (Run.count, "tp", "0"),
     (Run.positive, "mem_peak_gb_per_gpu", "0"), (Run.count, "zero_stage", "x")],
)  # fmt: skip
def test_cells_that_hold_no_number_are_told_and_blank(
    read: Callable[[Run, str], object], name: str, cell: str, tmp_path: Path
) -> None:
    runs = read_runs(written(tmp_path, table(**{name: cell})))
    assert read(runs[0], name) is None
    (told,) = odd_cells(runs)
    assert told.startswith(f"line 2: {name} {cell!r}")


def test_odd_cells_are_counted_beyond_the_first(tmp_path: Path) -> None:
    text = "id,model,tp,pp,dp,cp,ep,seq_len\n" + ",b,x,x,x,x,x,x\n" * 3
    told = odd_cells(read_runs(written(tmp_path, text)))
    assert len(told) == 6 and told[-1].startswith("13 more")


def test_shipped_runs_have_no_odd_cells() -> None:
    assert odd_cells(read_runs(shipped_runs())) == []


RATES = ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s", "tflops_per_gpu_reported")


def test_no_run_stands_here_under_two_sources() -> None:
    """Four digits that agree for as many GPUs, tokens and samples are one run, published twice or gathered twice: it
    would weigh twice, and be predicted from itself."""
    found: dict[tuple[str, ...], set[str]] = {}
    for one in (*read_runs(shipped_runs()), *read_runs(unseen_runs())):
        cells = [one.text(name) or "" for name in ("gpu", "n_gpus", "seq_len", "micro_batch", "global_batch")]
        for rate in RATES:
            digits = one.text(rate) or ""
            if len(digits.replace(".", "").strip("0")) >= 4:
                found.setdefault((*cells, rate, digits), set()).add(one.source)
    assert found and [same for same in found.items() if len(same[1]) > 1] == []


def test_odd_cells_reach_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(written(tmp_path, table(n_gpus="eight")))]) == 0
    told = capsys.readouterr()
    assert "note: line 2: n_gpus 'eight'" in told.err and "No replayed row has a measured step time" in told.out


def test_a_fit_is_refused_before_it_takes_minutes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = written(tmp_path, table())
    assert run(["calibrate", str(own), "--folder", str(tmp_path / "new")]) == 2
    assert (
        "too few usable runs with a step time to fit: 0" in capsys.readouterr().err and not (tmp_path / "new").exists()
    )
    more = {"micro_batch": "1", "global_batch": "8", "framework": "fsdp", "precision": "bf16", "seq_len": "4096"}
    own = written(tmp_path, table(**more, zero_stage="3"))
    assert run(["calibrate", str(own), "--folder", str(own)]) == 2
    assert "cannot write here" in capsys.readouterr().err


@pytest.mark.parametrize(("bar", "code"), [("0.0001%", 1), ("100000%", 0)])
def test_a_bar_is_a_share_or_per_cent(bar: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"micro_batch": "1", "global_batch": "8", "framework": "fsdp", "precision": "bf16", "seq_len": "4096"}
    own = written(tmp_path, table(**more, zero_stage="3", step_time_s="1"))
    assert run(["validate", str(own), "--median", bar]) == code
    assert ("--median" in capsys.readouterr().err) == (code == 1)


def test_a_failed_bar_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = written(tmp_path, table())
    assert run(["validate", str(own), "--median", "5%", "--memory-median", "0.05"]) == 1
    told = capsys.readouterr().err
    assert "--median 5% fails: no replayed row has a measured step time" in told
    assert "--memory-median 0.05 fails: no replayed row has a measured peak memory" in told
    more = {"micro_batch": "1", "global_batch": "8", "framework": "fsdp", "precision": "bf16", "seq_len": "4096"}
    own = written(tmp_path, table(**more, zero_stage="3", step_time_s="1"))
    assert run(["validate", str(own), "--median", "5%", "--json"]) == 1
    told = capsys.readouterr()
    median = json.loads(told.out)["summary"]["median_abs_error"]
    assert f"the median step-time error is {median:.2%}, {100 * (median - 0.05):.2f} points above" in told.err


@pytest.mark.parametrize("above", ["\n", "\n \n,,,\n", "sep=,\n\n", '\n"",""\n'])
def test_lines_of_nothing_above_the_headings(above: str, tmp_path: Path) -> None:
    one = read_runs(written(tmp_path, above + table(n_gpus="8")))[0]
    assert (one.text("model"), one.line) == ("llama-2-7b", 2 + above.count("\n"))
    with pytest.raises(DistsimError, match="the file is empty"):
        read_runs(written(tmp_path, above))


@pytest.mark.parametrize("arguments", [
    ["validate", "--median", "5"], ["validate", "--memory-median", "5"], ["search", "llama-7b", "--margin", "5"],
    ["plan", "llama-7b", "--tokens", "1T", "--margin", "5"],
], ids=" ".join)  # fmt: skip
def test_bare_shares_above_one_are_asked_about(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Bars of 500% had passed whatever there was."""
    assert run(arguments) == 2
    assert "5 is 500%: did you mean 5%?" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "asked"), [
    ("80", "80 is 8000%: did you mean 80%?"), ("1", "1 is 100%: did you mean 1%?"), ("1.5", "1.5 is 150%"),
    ("0.9", ""), ("101", ""), ("500%", ""), ("nan", ""), ("x", ""),
])  # fmt: skip
def test_what_a_bare_share_is_asked_about(text: str, asked: str) -> None:
    assert per_cent_meant(text).startswith(asked) and bool(per_cent_meant(text)) is bool(asked)


@pytest.mark.parametrize("bar", ["nan", "-1", "inf", "150"])
def test_a_bar_is_an_error_that_can_be(bar: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "--median", bar]) == 2
    assert "is not a valid error" in capsys.readouterr().err


def test_numbers_are_read_as_spreadsheets_write_them(tmp_path: Path) -> None:
    one = read_runs(written(tmp_path, table(samples_per_s="6,900.5", seq_len="16,384", mfu_pct="41.5%")))[0]
    assert (one.number("samples_per_s"), one.count("seq_len"), one.number("mfu_pct")) == (6900.5, 16384, 41.5)


def test_what_is_nearly_read_is_told(tmp_path: Path) -> None:
    text = table(tflops_per_gpu_reported="400", steptime_s="x").replace("step_time_s", "a")
    first, second = odd_cells(read_runs(written(tmp_path, text)))
    assert first == "column 'steptime_s' is not read; did you mean step_time_s?"
    assert second.startswith("line 2: a rate of FLOPs without a flops_kind that is understood")
    assert odd_cells(read_runs(written(tmp_path, table(step_time_std="1")))) == []


def test_reasons_name_what_was_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = table(framework="torchtitan", global_batch="8").replace("llama-2-7b", "llama-2-7x", 1)
    path = written(tmp_path, text)
    assert run(["validate", str(path), "--json"]) == 0
    reasons = [row["reason"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert "did you mean llama-2-7b" in reasons[0]


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"), ("Tesla T4", "t4"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"), ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
    ],
)  # fmt: skip
def test_gpus_go_by_the_names_that_drivers_print(told: str, name: str) -> None:
    assert catalog.load("gpus", told).name == name


@pytest.mark.parametrize(
    ("delimiter", "cells", "read"),
    [
        ("\t", ("5,762", "5762", "8,192"), (5762, 5762, 8192)),
        ("\t", ("5,762", "5762,5", "8192"), (5.762, 5762.5, 8192)),
        (";", ("5.762", "5.762,3", "1,42"), (5762, 5762.3, 1.42)),
        (";", ("5,762", "1.42", "8192"), (5762, 1.42, 8192)),
        (";", ("5,762", "5762", "8192"), (5.762, 5762, 8192)),
        (";", ("1.420", "13.280", "2.500"), (1.42, 13.28, 2.5)),  # points before three decimals, as scripts print them
        (";", ("1,420", "13.280", "2.500"), (1.42, 13.28, 2.5)),
        ("\t", ("1.420", "13.280", "2.500"), (1.42, 13.28, 2.5)),
    ],
)
def test_a_comma_means_the_same_in_a_whole_table(
    delimiter: str, cells: tuple[str, ...], read: tuple[float, ...], tmp_path: Path
) -> None:
    lines = [f"model{delimiter}step_time_s", *(f"llama-3-8b{delimiter}{cell}" for cell in cells)]
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    assert tuple(run.number("step_time_s") for run in read_runs(tmp_path / "runs.csv")) == read


def test_cells_beyond_the_heading_are_told(tmp_path: Path) -> None:
    """Blank ones, which spreadsheets write, are not."""
    text = 'id,model,gpu\na,llama-7b,h100-sxm,x,"1, 2"\nb,llama-7b,h100-sxm,,\nc,llama-7b,h100-sxm,y\n'
    told = odd_cells(read_runs(written(tmp_path, text)))
    assert told == ["line 2 and 1 more: 2 cells more than the heading has, not read; quote a cell that holds a comma"]
    assert odd_cells(read_runs(written(tmp_path, "id,model,gpu\nb,llama-7b,h100-sxm,,\n"))) == []


def test_names_of_several_rows_are_told(tmp_path: Path) -> None:
    rows = ["a,llama-7b", "b,llama-7b", ",llama-7b", ",llama-7b", "a,llama-7b", "b,llama-7b"]
    (told,) = odd_cells(read_runs(written(tmp_path, "\n".join(["id,model", *rows]))))
    assert told.startswith("id 'a' is on lines 2, 6, and 1 more id on several: pasted twice?")
    assert odd_cells(read_runs(written(tmp_path, "\n".join(["id,model", *rows[:4]])))) == []


@pytest.mark.parametrize(("rows", "line"), [
    (['a,llama-7b,h100-sxm,x', 'b,llama-7b,"h100-sxm,x'], 3),  # at the end, without a break of lines
    (['a,llama-7b,h100-sxm,x', 'b,llama-7b,h100-sxm,"x\n'], 3),
    (['"a,llama-7b,h100-sxm,x', 'b,llama-7b,h100-sxm,5" disk'], 2),
    (['a,llama-7b,h100-sxm,"x, y"', '"b,llama-7b,h100-sxm,x', *['c,llama-7b,h100-sxm,x'] * 2, 'd,m,g,"x, y"'], 3),
    (['"a,llama-7b,h100-sxm,x', *["b,llama-7b,h100-sxm,x"] * 9000], 2),
])  # fmt: skip
def test_quotes_that_are_not_closed_are_told_where_they_open(tmp_path: Path, rows: list[str], line: int) -> None:
    with pytest.raises(DistsimError, match="quote") as told:
        read_runs(written(tmp_path, "\n".join(["id,model,gpu,notes", *rows])))
    assert str(told.value.where).endswith(f":{line}")


def test_quotes_of_headings_and_of_whole_cells(tmp_path: Path) -> None:
    with pytest.raises(DistsimError, match="a quote is not closed") as told:
        read_runs(written(tmp_path, 'id,"model,gpu\na,llama-7b,h100-sxm\n'))
    assert str(told.value.where).endswith(":1")
    notes = '"two lines, of\nprose"" with, commas"'
    first, second = read_runs(written(tmp_path, f'id,model,gpu,notes\na,llama-7b,h100-sxm,{notes}\nb,m,g,5" x'))
    assert first.line == 3 and second.line == 4 and second.text("notes") == '5" x'
