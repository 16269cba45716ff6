"""Tables of nccl-tests as its versions print them, by the columns they name; and what no link carries is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distsim.cli.app import run
from distsim.engine.fitting import nccl_tests as calibrate
from distsim.errors import DistsimError
from distsim.interop import nccl_tests

RANKS = "\n".join(f"#  Rank {r:2d} Pid  {r} on   node1 device {r:2d} [0x0f] NVIDIA H100 80GB HBM3" for r in range(8))
TIMES = "time   algbw   busbw  error     time   algbw   busbw  error"
HEADS = {
    "new": f"#       size         count      type   redop    root     {TIMES}",
    "no root": f"#       size         count    type   redop     {TIMES}",
    "no redop": f"#       size         count    type    root     {TIMES}",
    "neither": f"#       size         count    type     {TIMES}",
    "iterations": f"# size count type redop root {TIMES.replace('error', '#wrong i_min i_max i_p99 i_cv%')}",
    "timestamp": f"# size count type redop root {TIMES} timestamp",
    "cputime": f"#       size         count      type   redop    root     {TIMES.replace('time', 'cputime')}",
}
MIDDLES = {"new": "sum -1", "no root": "sum", "no redop": "0", "neither": ""}
TAILS = {"timestamp": " 2025-11-22 12:00:00"}


def table(layout: str = "new", head: bool = True, middle: str | None = None, rate: float = 450e9) -> str:
    """An all-reduce of eight ranks in a layout, 20 us and then at a bus bandwidth."""
    rows = []
    for power in range(10, 34):
        size = 2**power
        time = 20 + size * 7 / 4 / rate * 1e6
        timed = f"{time:8.2f} {size / time / 1e3:7.2f} {size / time / 571:7.2f} 0"
        if layout == "iterations":
            timed += f" {time:.2f} {time:.2f} {time:.2f} 0.00"
        given = MIDDLES.get(layout, "sum -1") if middle is None else middle
        rows.append(f"{size:12d} {size // 4:12d} float {given} {timed} {timed}{TAILS.get(layout, '')}")
    return "\n".join(["# all_reduce_perf", RANKS, *([HEADS[layout]] if head else []), *rows, ""])


@pytest.mark.parametrize("layout", HEADS)
def test_the_header_says_where_the_times_are(tmp_path: Path, layout: str) -> None:
    file = tmp_path / "out.log"
    file.write_text(table(layout))
    (line,) = calibrate.fit(nccl_tests.read(str(file)), "h100-sxm").lines
    assert line.bytes_per_second == pytest.approx(450e9, rel=1e-3)
    assert line.latency_seconds == pytest.approx(20e-6, rel=1e-2)


@pytest.mark.parametrize("layout", MIDDLES)
def test_rows_without_a_header_end_in_two_measurements(tmp_path: Path, layout: str) -> None:
    file = tmp_path / "out.log"
    file.write_text(table(layout, head=False))
    assert nccl_tests.read(str(file)).samples[-1].seconds == pytest.approx((20e-6 + 2**33 * 7 / 4 / 450e9), rel=1e-3)


def test_a_blank_operation_moves_no_column(tmp_path: Path) -> None:
    file = tmp_path / "out.log"
    file.write_text(table("no root", middle=""))
    assert nccl_tests.read(str(file)).samples[0].seconds == pytest.approx(20e-6, rel=1e-2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (table("timestamp", head=False), "15 columns without a header line"),
        (table().replace(" time ", " t "), "no time column"),
    ],
)
def test_columns_that_nobody_names_are_not_guessed(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "out.log"
    file.write_text(text)
    with pytest.raises(DistsimError, match=words):
        nccl_tests.read(str(file))


def test_times_that_no_link_reaches_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "out.log"
    file.write_text(table(rate=35e12))
    with pytest.raises(DistsimError, match=r"times what nvlink-4 on h100-sxm can carry\n.*--internode-gbps-per-gpu"):
        calibrate.fit(nccl_tests.read(str(file)), "h100-sxm")


def test_another_device_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.log"
    file.write_text(table())
    assert run(["calibrate", "--nccl-tests", str(file), "--gpu", "h100-sxm"]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note:")]
    assert len(notes) == 1 and "nothing is kept" in notes[0]
    assert run(["calibrate", "--nccl-tests", str(file), "--gpu", "a100-sxm4-80gb", "--json"]) == 0
    told = capsys.readouterr()
    assert "NVIDIA H100 80GB HBM3, which is h100-sxm" in told.err
    assert len(json.loads(told.out)["notes"]) == 1


NODES = {"devices": [{"hostname": "h0", "device_info": "NVIDIA H100 80GB HBM3"}] * 8}
ROW = {"size": 1024, "out_of_place": {"time": 20.0}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"results": 5}, "results is 5, not a list"),
        ({"results": [5]}, "result 0: no size or out_of_place time in 5"),
        ({"results": [{"size": 1024, "out_of_place": 5}]}, "result 0: no size"),
        ({"results": [{"size": "1024", "out_of_place": {"time": 5.0}}]}, "result 0: no size"),
        ({"results": [ROW, {**ROW, "out_of_place": {"time": "nan"}}]}, "result 1: 'nan' is not a time"),
        ({"results": [{**ROW, "out_of_place": {"time": float("nan")}}]}, "result 0: nan is not a time"),
        ({"results": [{**ROW, "out_of_place": {"time": 10**400}}]}, "is not a time"),
        ({"results": None}, "no measurements"),
    ],
)
def test_json_of_another_shape_is_named(tmp_path: Path, data: object, words: str) -> None:
    file = tmp_path / "out.json"
    file.write_text(json.dumps(data))
    with pytest.raises(DistsimError, match=words):
        nccl_tests.read(str(file), "all_reduce", 8)


def test_a_test_that_runs_in_place_alone_is_read(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text(json.dumps({"results": [{"size": 1024, "in_place": {"time": 20.0}}]}))
    (sample,) = nccl_tests.read(str(file), "all_reduce", 8).samples
    assert (sample.size_bytes, sample.seconds) == (1024, pytest.approx(20e-6))


@pytest.mark.parametrize(
    ("more", "words"),
    [({"nranks": "eight"}, "nranks 'eight' is not a number of ranks"), ({"nranks": 0}, "nranks 0"),
     ({"devices": 5}, "number of ranks is not in the file")],
)  # fmt: skip
def test_ranks_of_another_shape_are_named(tmp_path: Path, more: dict[str, object], words: str) -> None:
    file = tmp_path / "out.json"
    file.write_text(json.dumps({**more, "results": [ROW]}))
    with pytest.raises(DistsimError, match=words):
        nccl_tests.read(str(file), "all_reduce")


def test_json_without_end_is_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text('{"a":' * 100_000)
    with pytest.raises(DistsimError, match="not usable JSON: its brackets are nested too deep"):
        nccl_tests.read(str(file))


def test_json_names_its_device_and_its_test(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text(json.dumps({"args": ["/opt/nccl_perf/all_gather_perf"], "config": NODES, "results": [ROW]}))
    found = nccl_tests.read(str(file))
    assert found.device == "NVIDIA H100 80GB HBM3"
    assert found.samples[0][:3] == ("all_gather", 8, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ranks", "-3"], "-3 ranks cannot form a group"),
        (["--ranks", "0"], "0 ranks cannot form a group"),
        (["--ranks", "3"], "--ranks 3 contradicts the file, which says 8"),
        (["--collective", "all_gather"], "--collective all_gather contradicts the file, which says all_reduce"),
        (["--gpus-per-node", "0"], "0 GPUs per node"),
        (["--internode-gbps-per-gpu", "-5"], "-5 Gb/s is not a valid network bandwidth"),
        (["--internode-gbps-per-gpu", "0"], "0 Gb/s is not a valid network bandwidth"),
        (["--collective", "al_reduce"], "did you mean all_reduce"),
        (["--network", "infinibanana"], "unknown network"),
        (["--cluster", "dgx-h100"], "both name the accelerator"),
    ],
)
def test_options_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    file = tmp_path / "out.log"
    file.write_text(table())
    assert run(["calibrate", "--nccl-tests", str(file), "--gpu", "h100-sxm", *options]) == 2
    assert words in capsys.readouterr().err


def test_one_rank_exchanges_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.log"
    file.write_text("\n".join(line for line in table().splitlines() if "Rank" not in line))
    assert run(["calibrate", "--nccl-tests", str(file), "--gpu", "h100-sxm", "--ranks", "1"]) == 2
    assert "on one rank exchanges nothing" in capsys.readouterr().err


def test_ranks_without_hosts_fill_usual_nodes(tmp_path: Path) -> None:
    file = tmp_path / "out.log"
    file.write_text("\n".join(line for line in table(rate=150e9).splitlines() if "Rank" not in line))
    found = nccl_tests.read(str(file), ranks=16)
    assert found.samples[0].nodes == 0
    assert list(calibrate.fit(found, "h100-sxm").factors) == ["ib-ndr/all_reduce"]
    assert list(calibrate.fit(found, "h100-sxm", 16).factors) == ["nvlink-4/all_reduce"]
