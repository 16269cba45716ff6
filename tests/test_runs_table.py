"""Tables of measured runs as people save them: marks, other delimiters, cells that are no numbers."""

import csv
import io
from pathlib import Path

import pytest

from distsim.cli.app import run
from distsim.engine.validate import shipped_runs
from distsim.errors import DistsimError
from distsim.interop.runs import odd_cells, read_runs

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


@pytest.mark.parametrize("text", [table(), table(";"), table("\t"), table(end="\r\n"), table(";", "\r\n")])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_spreadsheets_are_read(text: str, encoding: str, tmp_path: Path) -> None:
    runs = read_runs(written(tmp_path, text, encoding))
    assert [(one.id, one.count("n_gpus"), one.number("step_time_s")) for one in runs] == [("a", 8, 1.5), ("b", 16, 2.5)]


@pytest.mark.parametrize(
    ("text", "encoding", "told"),
    [
        ("", "utf-8", "empty"),
        (table(), "utf-16", "UTF-8"),
        ("id,model,gpu,gpu\na,b,c,d\n", "utf-8", "'gpu' stands twice"),
        ("id,model\n", "utf-8", "no rows"),
        ("a,b\n1,2\n", "utf-8", "no column 'model'"),
    ],
)
def test_what_is_no_table_is_told(text: str, encoding: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(DistsimError, match=told):
        read_runs(written(tmp_path, text, encoding))


@pytest.mark.parametrize(
    ("name", "cell"),
    [("n_gpus", "eight"), ("n_gpus", "8.5"), ("step_time_s", "-3"), ("step_time_s", "nan"), ("step_time_s", "1,5"),
     ("tp", "0"), ("mem_peak_gb_per_gpu", "0"), ("zero_stage", "x")],
)  # fmt: skip
def test_cells_that_hold_no_number_are_told_and_blank(name: str, cell: str, tmp_path: Path) -> None:
    runs = read_runs(written(tmp_path, table(**{name: cell})))
    assert runs[0].positive(name) is None or runs[0].count(name) is None
    (told,) = odd_cells(runs)
    assert told.startswith(f"line 2: {name} {cell!r}")


def test_odd_cells_are_counted_beyond_the_first(tmp_path: Path) -> None:
    text = "id,model,tp,pp,dp,cp,ep,seq_len\n" + "a,b,x,x,x,x,x,x\n" * 3
    told = odd_cells(read_runs(written(tmp_path, text)))
    assert len(told) == 6 and told[-1].startswith("13 more")


def test_shipped_runs_have_no_odd_cells() -> None:
    assert odd_cells(read_runs(shipped_runs())) == []


def test_odd_cells_reach_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(written(tmp_path, table(n_gpus="eight")))]) == 0
    told = capsys.readouterr()
    assert "note: line 2: n_gpus 'eight'" in told.err and "No row that could be replayed" in told.out


def test_a_fit_is_refused_before_it_takes_minutes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = written(tmp_path, table())
    assert run(["calibrate", str(own), "--folder", str(tmp_path / "new")]) == 2
    assert "0 runs with a step time" in capsys.readouterr().err and not (tmp_path / "new").exists()
    more = {"micro_batch": "1", "global_batch": "8", "framework": "fsdp", "precision": "bf16", "seq_len": "4096"}
    own = written(tmp_path, table(**more, zero_stage="3"))
    assert run(["calibrate", str(own), "--folder", str(own)]) == 2
    assert "cannot write here" in capsys.readouterr().err


@pytest.mark.parametrize("bar", ["nan", "-1", "inf"])
def test_a_bar_is_an_error_that_can_be(bar: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "--median", bar]) == 2
    assert "is no error" in capsys.readouterr().err
