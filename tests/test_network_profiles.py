"""Network profiles: fitted on the links of a cluster, read with care, and never without effect unsaid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import distsim
from distsim import catalog
from distsim.cli.app import run
from distsim.engine.fitting.links import factor_for, is_intra
from distsim.engine.fitting.nccl_tests import fit
from distsim.engine.networks.link_factors import factors
from distsim.engine.networks.links import network_for
from distsim.interop.nccl_tests import NcclTests, Sample

ON_P5 = ("--cluster", "p5.48xlarge", "--gpus", "16")
ONE = ("comm", "--collective", "all_reduce", "--bytes", "1GB")
GOOD = "latency_short = 1\nlatency_long = 1\nbandwidth = 0.5\n"


def profile(folder: Path, text: str) -> str:
    file = folder / "mine.toml"
    file.write_text(text)
    return str(file)


def measured(folder: Path) -> str:
    """All-reduces of 16 ranks on two hosts, at a bus bandwidth of 180 GB/s."""
    ranks = [f"#  Rank {r:2d} Pid {r} on host{r // 8} device {r % 8} [0x0f] NVIDIA H100 80GB HBM3" for r in range(16)]
    rows = []
    for power in range(20, 34):
        time = 60 + 2**power * 30 / 16 / 180e9 * 1e6
        rows.append(f"{2**power} {2**power // 4} float sum -1 {time:.2f} 1.0 1.0 0 {time:.2f} 1.0 1.0 0")
    file = folder / "out.log"
    file.write_text("\n".join(["# all_reduce_perf", *ranks, *rows, ""]))
    return str(file)


def test_the_links_follow_from_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, output = measured(tmp_path), str(tmp_path / "p5.toml")
    assert run(["calibrate", "--nccl-tests", file, "--cluster", "p5.48xlarge", "--output", output, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["factors"]) == ["efa-v2/all_reduce"]
    usual, mine = (
        distsim.collective("all_reduce", cluster="p5.48xlarge", gpus=16, bytes=2**32, profile=one)
        for one in (None, output)
    )
    assert mine.bus_bandwidth == pytest.approx(180e9, rel=0.1)
    assert usual.bus_bandwidth > 300e9
    assert run([*ONE, *ON_P5, "--profile", output]) == 0
    assert "note" not in capsys.readouterr().err
    assert run(["calibrate", "--nccl-tests", file, "--gpu", "h100-sxm", "--network", "roce", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["factors"]) == ["roce/all_reduce"]


@pytest.mark.parametrize(
    "command",
    [ONE, ("comm", "llama-7b"), ("step", "llama-7b"), ("search", "llama-7b", "--global-batch", "64", "--pp", "1")],
    ids=["collective", "comm", "step", "search"],
)
def test_factors_of_other_links_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    other = profile(tmp_path, f"[factor.ib-ndr.all_reduce]\n{GOOD}")
    run([*command, *ON_P5, "--profile", other, "--json"])
    told = capsys.readouterr()
    assert "has no effect: it has factors of ib-ndr/all_reduce" in told.err
    assert "efa-v2/all_reduce" in told.err
    assert any("has no effect" in note for note in json.loads(told.out)["notes"])
    run([*command, *ON_P5, "--profile", profile(tmp_path, f"[factor.nvlink-4.all_reduce]\n{GOOD}"), "--json"])
    assert "has no effect" not in capsys.readouterr().err


def test_factors_of_other_collectives_and_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gathers = profile(tmp_path, f"[factor.efa-v2.gather]\n{GOOD}")
    assert run([*ONE, *ON_P5, "--profile", gathers]) == 0
    assert "has no effect" in capsys.readouterr().err
    for all_others in ("efa-v2.direct", "other-intra.direct", "nvlink-4.direct"):
        text = f"[factor.{all_others}]\n{GOOD}"
        (tmp_path / f"{all_others}.toml").write_text(text)
        assert run([*ONE[:2], "all_to_all", *ON_P5, "--profile", str(tmp_path / f"{all_others}.toml")]) == 0
        noted = "has no effect" in capsys.readouterr().err
        assert noted == (all_others == "other-intra.direct")  # nvlink-4 and efa-v2 have factors of their own


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[factor.nvlink-4.all_reduce]\nbandwidth = 1", "all_reduce lacks latency_short and latency_long"),
        (f"[factor.nvlink-4.all_reduce]\n{GOOD}".replace("0.5", "-1"), "nvlink-4.all_reduce.bandwidth is -1"),
        (f"[factor.nvlink-4.all_reduce]\n{GOOD}".replace("0.5", "0"), "bandwidth is 0"),
        (f"[factor.nvlink-4.all_reduce]\n{GOOD}".replace("0.5", "nan"), "bandwidth is nan"),
        (f"[factor.nvlink-4.all_reduce]\n{GOOD}".replace("0.5", "inf"), "bandwidth is inf"),
        (f"[factor.nvlink-4.all_reduce]\n{GOOD}".replace("0.5", "true"), "bandwidth is True"),
        (f"[factor.nvlink-4.all_reduce]\n{GOOD}".replace("0.5", '"1"'), "bandwidth is '1'"),
        (f"[factor.nvlink-4.all_reduce]\n{GOOD}".replace("bandwidth", "bandwith"), "did you mean bandwidth"),
        (f"[factor.nvlink-4.allreduce]\n{GOOD}", "did you mean all_reduce"),
        (f"[factor.nvlink-4]\n{GOOD}", "unknown family of collectives"),
        ("[factor.nvlink-4]\nall_reduce = 1", "all_reduce is 1, not a table"),
        ("factor = 1", "factor is 1, not a table"),
        ("[factor]", "no [factor] for any link"),
    ],
)
@pytest.mark.parametrize("command", [ONE, ("comm", "llama-7b"), ("step", "llama-7b")], ids=["one", "comm", "step"])
def test_wrong_factors_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], text: str, words: str
) -> None:
    assert run([*command, *ON_P5, "--profile", profile(tmp_path, text)]) == 2
    told = capsys.readouterr()
    assert words in told.err and "mine.toml" in told.err
    assert not told.out


def test_links_inside_a_domain_are_told_from_networks_on_every_chip() -> None:
    """Also UALink, and Gaudi's links, which are Ethernet as a network between nodes may be."""
    networks = [network_for(name) for name in catalog.names("gpus")]
    assert {"ualink-rack", "on-chip-ethernet"} <= {one.inside for one in networks}
    assert all(is_intra(f"{one.inside}/all_reduce") and not is_intra(f"{one.inter}/all_reduce") for one in networks)
    shipped = factors()
    assert factor_for(shipped, "ualink/all_reduce") == shipped["other-intra/all_reduce"]


@pytest.mark.parametrize(("gpu", "link", "domain"), [("mi455x", "ualink-rack", 72), ("gaudi2", "on-chip-ethernet", 8)])
def test_factors_of_links_inside_are_fitted_before_those_of_the_network(gpu: str, link: str, domain: int) -> None:
    """What one domain is slow by is not laid to the network that joins two, whose rings also run inside."""
    network = network_for(gpu, None, 400, "ethernet")
    samples = [
        Sample("all_reduce", ranks, nodes, 2**power, 1e-4 + 2**power * 2 / (share * network.intra_rate))
        for ranks, nodes, share in (
            (2 * domain, 2 * domain // network.node, 0.05),
            (domain, domain // network.node, 0.5),
        )
        for power in range(26, 37)
    ]
    found = fit(NcclTests(tuple(samples), ""), gpu, None, 400, "ethernet").factors
    assert list(found) == [f"{link}/all_reduce", "ethernet/all_reduce"]
    assert found[f"{link}/all_reduce"].bandwidth == pytest.approx(0.5, rel=0.15)
