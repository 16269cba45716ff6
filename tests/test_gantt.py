"""What the terminal shows, at several widths and sizes, and the exported drawings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import distsim
from distsim.cli.app import run
from distsim.report import gantt, pipeline_compare, pipeline_svg, pipeline_text, trace
from distsim.report.printer import plain
from distsim.schedules.registry import SCHEDULES
from tests.shell import piped

GOLDEN = """\
1f1b: one forward, one backward, with flush
4 stages, 8 micro-batches

stage                                                                idle held
0│0─1─2─3─            0███4─1███5─2███6─3███7─4███  5███  6███  7███│ 27%    4
1│  0─1─2─        0███3─1███4─2███5─3███6─4███7─5███  6███  7███    │ 27%    3
2│    0─1─    0███2─1███3─2███4─3███5─4███6─5███7─6███  7███        │ 27%    2
3│      0─0███1─1███2─2███3─3███4─4███5─5███6─6███7─7███            │ 27%    1
 └┴─────────┴─────────┴─────────┴─────────┴─────────┴─────────┴─────
  0         5         10        15        20        25        30  33
"""


def lines(report: Any, width: int | None, unicode: bool = True) -> list[str]:
    return [plain(line) for line in pipeline_text.page(report, width, unicode)]


def chart(report: Any, width: int | None) -> list[str]:
    return [plain(line) for line in gantt.chart(report, gantt.scale(report, width))]


def test_a_small_schedule_at_80_columns() -> None:
    assert "\n".join(lines(distsim.pipeline(4, 8), 80)).startswith(GOLDEN)


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 140, 200])
@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "naive"])
def test_every_chart_fits_its_width(name: str, width: int) -> None:
    for stages, micro in ((4, 8), (8, 32)):
        report = distsim.pipeline(stages, micro, name)
        drawn = lines(report, width)
        first = drawn.index("") + 1
        assert all(len(line) <= width for line in drawn[first : first + stages + 3])


@pytest.mark.parametrize(("stages", "micro", "width"), [(4, 8, 30), (8, 64, 60), (16, 128, 100), (64, 256, 80)])
def test_blank_columns_are_the_idle_share(stages: int, micro: int, width: int) -> None:
    report = distsim.pipeline(stages, micro)
    at = gantt.scale(report, width)
    assert at.merged
    for stage, line in enumerate(gantt.chart(report, at)):
        blank = "".join(span.text for span in line).count(" ")
        assert abs(blank - report.idle[stage] / report.makespan * at.columns) <= 1


def test_exact_charts_draw_every_action_in_its_place() -> None:
    report = distsim.pipeline(4, 8, "zb-v")
    at = gantt.scale(report, 110)
    rows = ["".join(span.text for span in line) for line in gantt.chart(report, at)]
    for action in report.actions:
        first = round(action.start * at.per_second)
        assert rows[action.stage][first : first + 1] == str(action.micro)
    assert sum(row.count(" ") for row in rows) == round(sum(report.idle) * at.per_second)


def test_many_stages_are_shown_evenly() -> None:
    report = distsim.pipeline(200, 16)
    shown = gantt.shown_stages(200)
    assert len(shown) == 64 and shown[0] == 0 and shown[-1] == 199
    assert "64 of 200 stages are shown, evenly spaced." in lines(report, 80)


@pytest.mark.parametrize("name", SCHEDULES)
def test_ascii_output_is_ascii(name: str) -> None:
    report = distsim.pipeline(4, 8, name, optimizer=1)
    assert "\n".join(lines(report, 90, unicode=False)).isascii()


def test_kinds_differ_without_colour() -> None:
    for unicode in (True, False):
        fills = gantt.glyphs(unicode)
        assert len({fills[kind] for kind in ("F", "B", "W", "FB", "O")}) == 5


def test_the_closed_form_stands_beside_the_simulation() -> None:
    def figure(*args: Any, **options: Any) -> str:
        return pipeline_text.closed_form(distsim.pipeline(*args, **options))

    assert figure(4, 8, hop=5) == "closed form 113"
    assert figure(4, 8, "zb-h1", hop=0.5) == "closed form 27, not exact here"
    assert figure(4, 8, "interleaved-1f1b", 2) == "closed form 28.5"
    assert figure(4, 8, forward=[1, 1, 2, 1]) == figure(4, 8, "v-half") == ""
    for transfers in ({"p2p": "rendezvous"}, {"overlap": False}, {"contention": True}):  # no form knows of these
        assert figure(4, 8, hop=0.5, **transfers) == ""
        assert figure(4, 8, **transfers) == "closed form 33"


def test_zero_times_and_single_stages_still_draw() -> None:
    assert lines(distsim.pipeline(2, 2, forward=1, backward=0), 60)
    assert lines(distsim.pipeline(1, 1), 60)
    assert run(["pipeline", "--stages", "4", "--micro", "8", "--forward", "0", "--backward", "1", "--compare"]) == 0
    assert run(["pipeline", "--stages", "4", "--micro", "8", "--forward", "0", "--backward", "0"]) == 2
    assert chart(distsim.pipeline(1, 3, forward=1e-9, backward=3e-9), 60)


def test_comparison_is_sorted_and_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["pipeline", "--stages", "4", "--micro", "8", "--compare"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert run(["pipeline", "--stages", "4", "--micro", "8", "--compare", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["schedules"]
    assert [row["makespan"] for row in rows] == sorted(row["makespan"] for row in rows)
    assert {row["schedule"] for row in rows} >= {"1f1b", "zb-v", "dualpipe", "chimera", "hanayo", "v-min"}
    assert all(out.index(row["schedule"]) for row in rows)


def test_sparks_show_busy_stages() -> None:
    report = distsim.pipeline(4, 8)
    line = pipeline_compare.spark(report, 33, 33.0, unicode=True)
    assert len(line) == 33 and line[0] == "▂" and line[9] != "█" and line[16] == "█"
    assert pipeline_compare.spark(report, 10, 20.0, unicode=False).endswith(">")


def test_svg_is_well_formed_and_has_every_action() -> None:
    report = distsim.pipeline(4, 8, "dualpipe")
    root = ElementTree.fromstring(pipeline_svg.draw(report))
    titles = root.findall(".//{http://www.w3.org/2000/svg}rect/{http://www.w3.org/2000/svg}title")
    assert len(titles) == len(report.actions)


@pytest.mark.parametrize("name", ["1f1b", "dualpipe", "zb-v", "interleaved-1f1b"])
def test_trace_follows_the_trace_event_format(name: str, tmp_path: Path) -> None:
    report = distsim.pipeline(4, 8, name, hop=0.1)
    found = json.loads(json.dumps(trace.events(report)))
    events = found["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f"}
    required = {"M": {"name", "args"}, "X": {"name", "cat", "ts", "dur"}, "s": {"id", "ts"}, "f": {"id", "ts", "bp"}}
    for event in events:
        assert {"pid", "tid"} | required[event["ph"]] <= set(event)
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(report.actions)
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(report.makespan * 1e6)
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begins.keys() == ends.keys() and begins
    assert all(begins[number]["ts"] < ends[number]["ts"] for number in begins)


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "--stages", "4", "--micro", "8", "--schedule", "zb-v", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "distsim.pipeline/1"
    assert {"schedule", "stages", "micro", "chunks", "makespan", "bubble_fraction", "span_bubble_fraction", "idle",
            "peak_in_flight", "weight_versions", "actions"} <= set(answer)  # fmt: skip
    assert answer["actions"][0] == {"stage": 0, "kind": "F", "micro": 0, "chunk": 0, "start": 0.0, "end": 0.5}
    assert len(answer["actions"]) == 4 * 8 * 2 * 3


def test_exports_and_balance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg, file = tmp_path / "a.svg", tmp_path / "a.json"
    command = f"pipeline --stages 4 --micro 8 --balance 0.5,1*14,2 --svg {svg} --trace {file}"
    assert run(command.split()) == 0
    assert "layers per part  5 4 4 3" in capsys.readouterr().out
    assert svg.read_text().startswith("<svg") and json.loads(file.read_text())["traceEvents"]


def test_torch_csv_reads_as_an_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "order.csv"
    file.write_text("0F0,0SEND_F0,0F1,,,0RECV_B0,0B0,,0B1\n,0RECV_F0,1F0,1B0,1F1,1B1,1REDUCE_GRAD,\n")
    assert run(["pipeline", "--order", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan"] == 9


def test_help_ends_with_an_example_and_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "--help"]) == 0
    assert "Example: distsim pipeline" in capsys.readouterr().out
    assert run(["pipeline", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in SCHEDULES)


def test_a_step_that_is_drawn_shorter_says_what_it_assumes() -> None:
    """A bubble is that of passes of their own lengths, over stages and chunks that are alike."""
    job = "gemma-2-9b --gpu h100-sxm --gpus 8 --pp 8 --vpp 4 --global-batch 16 --seq 1024"
    told = " ".join(piped("step", *job.split(), "--gantt").stdout.split())
    assert "assumes the bubble of interleaved-1f1b for equal stages and chunks; with these passes it would be" in told


@pytest.mark.parametrize(
    ("words", "time"),
    [("gemma-2-9b --stages 4 --micro 1 --tp 2 --seq 128 --cuda-graphs modules", r"0\.0\d{2,4} s"),
     ("deepseek-v3 --stages 2 --micro 8", r"1\d,\d{3} s")],
)  # fmt: skip
def test_times_of_compared_schedules_are_below_their_heading(
    words: str, time: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are longer than it; the lines stay within the terminal, and no time is a power of ten."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["pipeline", "--model", *words.split(), "--compare"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("schedule "))
    rows = [line for line in lines if re.search(r"^\S+ +\d+ .* s ", line)]
    assert len(rows) > 10 and max(map(len, lines)) <= 80
    assert {line.index(" s ") + 2 for line in rows} == {head.index("makespan") + len("makespan")}
    assert re.search(rf"^naive +1 {time} ", "\n".join(rows), re.MULTILINE)
