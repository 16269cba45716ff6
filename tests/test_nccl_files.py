"""Output of nccl-tests and logs of NCCL: read, fitted, drawn; unreadable ones name their line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import distsim
from distsim.cli import network_files
from distsim.cli.app import run
from distsim.cli.collective import price_collective, sizes
from distsim.engine.fitting import nccl_tests as calibrate
from distsim.errors import DistsimError
from distsim.interop import nccl_log, nccl_tests
from distsim.report import topology as drawing

HEAD = """# Collective test starting: {op}_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
{ranks}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
LOG = """node1:100:200 [0] NCCL INFO NCCL version 2.22.3+cuda12.5
node1:100:200 [0] NCCL INFO  Pattern 4, crossNic 0, nChannels 12, bw 20.000000/20.000000, type NVL/PIX, sameChannels 1
node1:100:200 [0] NCCL INFO Channel 00/02 :    0   1   2   3
node1:100:200 [0] NCCL INFO Channel 01/02 :    0   1   2   3
node1:100:200 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
node1:101:201 [1] NCCL INFO Trees [0] 2/3/-1->1->0 [1] 2/-1/-1->1->0
node1:102:202 [2] NCCL INFO Trees [0] -1/-1/-1->2->1 [1] 3/-1/-1->2->1
node1:103:203 [3] NCCL INFO Trees [0] -1/-1/-1->3->1 [1] -1/-1/-1->3->2
node1:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node1:103:203 [3] NCCL INFO Channel 01/0 : 3[3] -> 0[0] [send] via NET/IB/0/GDRDMA
something else
"""


def table(op: str, rows: list[tuple[int, float]], ranks: int = 8, nodes: int = 1) -> str:
    per_node = ranks // nodes
    devices = "\n".join(
        f"#  Rank {rank:2d} Group  0 Pid {900 + rank} on host{rank // per_node} device {rank % per_node} "
        f"[0000:{rank:02d}:00] NVIDIA H100 80GB HBM3"
        for rank in range(ranks)
    )
    lines = [
        f"{size:12d} {size // 4:12d} float sum -1 {time:8.2f}  1.0  2.0      0 {time:8.2f}  1.0  2.0    N/A"
        for size, time in rows
    ]
    return HEAD.format(op=op, ranks=devices) + "\n".join(lines) + "\n# Avg bus bandwidth    : 1.0\n"


def straight(latency: float, rate: float, factor: float) -> list[tuple[int, float]]:
    return [(2**power, latency + 2**power * factor / rate * 1e6) for power in range(10, 34)]


def test_text_is_read(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    file.write_text(table("all_reduce", [(1024, 20.0), (2**30, 4000.0)], 16, 2))
    found = nccl_tests.read(str(file))
    assert found.device == "NVIDIA H100 80GB HBM3"
    assert found.samples[1] == nccl_tests.Sample("all_reduce", 16, 2, 2**30, pytest.approx(4e-3))


def test_json_is_read(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    rows = [{"size": size, "count": 1, "type": "float", "redop": "sum", "root": -1,
             "out_of_place": {"time": time, "alg_bw": 1, "bus_bw": 1, "nwrong": "0"}} for size, time in ((8, 9.5), (2**20, 30.0))]  # fmt: skip  # noqa: E501
    config = {"devices": [{"rank": rank, "hostname": f"h{rank // 4}"} for rank in range(8)]}
    file.write_text(json.dumps({"version": "2.17", "args": ["./build/alltoall_perf", "-b", "8"], "config": config,
                                "results": rows}))  # fmt: skip
    found = nccl_tests.read(str(file))
    assert [one.op for one in found.samples] == ["all_to_all"] * 2
    assert found.samples[0].ranks == 8 and found.samples[0].nodes == 2
    assert found.samples[1].seconds == pytest.approx(30e-6)


def test_a_straight_line_is_recovered(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    file.write_text(table("all_gather", straight(25.0, 330e9, 7 / 8)))
    profile = calibrate.fit(nccl_tests.read(str(file)), "h100-sxm", None, None)
    (line,) = profile.lines
    assert line.latency_seconds == pytest.approx(25e-6, rel=1e-3)
    assert line.bytes_per_second == pytest.approx(330e9, rel=1e-3)
    assert line.error < 1e-3


def test_profile_changes_prices_and_is_a_file_jobs_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, output = tmp_path / "out.txt", tmp_path / "network.toml"
    file.write_text(table("all_reduce", straight(60.0, 180e9, 2 * 15 / 16), 16, 2))
    network_files.calibrate_nccl_tests(str(file), "h100-sxm", 8, 400, output=str(output))
    assert "all_reduce" in capsys.readouterr().out
    assert output.read_text().startswith("# Written by `distsim calibrate --nccl-tests`;")
    with_it = distsim.collective("all_reduce", "h100-sxm", 16, 2**32, 8, 400, profile=str(output))
    without = distsim.collective("all_reduce", "h100-sxm", 16, 2**32, 8, 400)
    assert with_it.bus_bandwidth == pytest.approx(180e9, rel=0.06)
    assert without.bus_bandwidth > 350e9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing here\n", "no measurements"),
        ("# all_reduce_perf\n 1024 256 float sum -1 20.1 0.1 0.2 0 20.0 0.1 0.2 0\n", "number of ranks"),
        ("1024 256 float sum -1 20.1 0.1 0.2 0 20.0 0.1 0.2 0\n", "does not name its collective"),
        (table("all_reduce", [(8, 1.0)]).replace("    1.00  1.0", "    oops  1.0"), "line 17"),
        ('{"results": [', "line 1"),
        ('{"args": "all_reduce_perf", "config": {"nranks": 4}, "results": [{"size": 8}]}', "result 0"),
    ],
)
def test_unreadable_measurements_say_where(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bad.txt"
    file.write_text(text)
    with pytest.raises(DistsimError) as caught:
        nccl_tests.read(str(file))
    assert words in caught.value.text()


def test_log_is_read_and_drawn() -> None:
    found = nccl_log.parse(LOG)
    assert found.version == "2.22.3+cuda12.5" and found.ranks == 4
    assert found.rings == {0: (0, 1, 2, 3), 1: (0, 1, 2, 3)}
    assert found.trees[0].parents == {0: -1, 1: 0, 2: 1, 3: 1}
    assert {edge.transport for edge in found.edges} == {"P2P/CUMEM/read", "NET/IB/0/GDRDMA"}
    assert found.graphs[0].channels == 12 and found.graphs[0].pattern == "ring"
    text = drawing.text(found)
    assert "channels 0-1: 0 → 1 → 2 → 3 → 0" in text
    assert "0\n    └─ 1\n       ├─ 2\n       └─ 3" in text
    assert "12 channels x 20 GB/s inside (240)" in text
    drawing.text(found, unicode=False).encode("ascii")


def test_rings_from_successor_lines() -> None:
    lines = [f"h:1:1 [{r}] NCCL INFO Ring 00 : {(r - 1) % 4} -> {r} -> {(r + 1) % 4}" for r in range(4)]
    assert nccl_log.parse("\n".join(lines)).rings == {0: (0, 1, 2, 3)}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("h:1:1 [0] NCCL INFO Channel 00/02 :  0 1 1 2", "log, line 2"),
        ("h:1:1 [0] NCCL INFO Trees garbage", "log, line 2"),
        ("h:1:1 [0] NCCL INFO Ring 00 : what", "log, line 2"),
        ("h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] => 1[1]", "log, line 2"),
        ("h:1:1 [0] NCCL INFO Using network IB", "NCCL_DEBUG_SUBSYS=INIT,GRAPH"),
        ("no NCCL at all", "0 NCCL INFO lines"),
    ],
)
def test_unreadable_logs_say_where(line: str, words: str) -> None:
    with pytest.raises(DistsimError) as caught:
        nccl_log.parse("first line\n" + line)
    assert words in caught.value.text()


def test_topology_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nccl.log"
    file.write_text(LOG)
    network_files.show_topology(str(file), json=True)
    assert json.loads(capsys.readouterr().out)["rings"]["0"] == [0, 1, 2, 3]
    network_files.show_topology(str(file))
    assert "4 ranks, 2 rings, 2 trees" in capsys.readouterr().out
    with pytest.raises(DistsimError, match="cannot read"):
        network_files.show_topology(str(tmp_path / "none.log"))


def test_sweep_of_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert sizes(8, 64) == [8, 16, 32, 64] and sizes(8, 100) == [8, 16, 32, 64, 100] and sizes(5, 5) == [5]
    price_collective("all_reduce", size="1GB", cluster="dgx-h100", gpus=16, sweep_from="1MB")
    out = capsys.readouterr().out
    assert "busbw (GB/s)" in out and "nvls_tree" in out and "1,000,000,000" in out and "█" in out.replace("#", "█")
    price_collective("all_gather", size="64MiB", gpu="a100-sxm4-80gb", json=True)
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "distsim.collective/1" and data["sizes"][-1]["bytes"] == 2**26


@pytest.mark.parametrize("given", [{"size": "0"}, {"size": "many"}, {"size": "1MB", "sweep_from": "1GB"}])
def test_absurd_sizes(given: dict[str, str]) -> None:
    with pytest.raises(DistsimError):
        price_collective("all_reduce", gpu="h100-sxm", **given)  # type: ignore[arg-type]


def test_show_topology_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from distsim.cli.app import run

    file = tmp_path / "nccl.log"
    file.write_text(LOG)
    assert run(["show", "topology", "--nccl-log", str(file)]) == 0
    assert "└─" in capsys.readouterr().out.replace("`- ", "└─ ")
    file.write_text("h:1:1 [0] NCCL INFO Ring 00 : what\n")
    assert run(["show", "topology", "--nccl-log", str(file)]) == 2
    assert "line 1" in capsys.readouterr().err
    assert run(["show", "topology"]) == 2
    assert run(["show", "gpus", "--nccl-log", str(file)]) == 2


def test_a_calibrated_profile_changes_the_jobs_that_name_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = "\n".join(f"#  Rank {r:2d} Group  0 Pid  {r} on   node1 device {r:2d} [0x0f] NVIDIA H100" for r in range(8))
    slow = [(1 << 20, 400.0), (1 << 24, 1200.0), (1 << 27, 9000.0), (1 << 30, 70000.0)]
    lines = [f" {size} {size // 4} float sum -1 {time} 1 1 0 {time} 1 1 0" for size, time in slow]
    log, profile = tmp_path / "all_reduce.log", tmp_path / "mine.toml"
    log.write_text(HEAD.format(op="all_reduce", ranks=ranks) + "\n".join(lines) + "\n")
    assert run(["calibrate", "--nccl-tests", str(log), "--gpu", "h100-sxm", "--output", str(profile)]) == 0
    assert "nothing is kept" not in capsys.readouterr().err
    assert run(["calibrate", "--nccl-tests", str(log), "--gpu", "h100-sxm"]) == 0
    assert "nothing is kept: --output FILE writes a network profile" in capsys.readouterr().err
    job = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 8}
    usual, mine = (distsim.comm(**job, profile=one).collectives for one in (None, str(profile)))
    assert sum(row.seconds for row in mine) > 2 * sum(row.seconds for row in usual)
    assert [row.wire_bytes_per_rank for row in mine] == [row.wire_bytes_per_rank for row in usual]
    capsys.readouterr()
    assert run(["memory", "llama-7b", "--profile", str(profile)]) == 1
    assert "--profile" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["--nccl-tests", "x.log"], ["--nccl-tests", "nowhere.log", "--gpu", "h100-sxm"]]
)
def test_calibrate_says_what_it_lacks(arguments: list[str]) -> None:
    assert run(["calibrate", *arguments]) == 2
