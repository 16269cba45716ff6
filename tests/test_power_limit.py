"""Power limits of a job and of a cluster: speed, watts, refusals, and the way of the option through the commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from shell import piped

import distsim
from distsim import catalog
from distsim.engine.jobs.hardware import limited
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.kernels.chip import Chip
from distsim.engine.layouts.varied import values_of
from distsim.engine.plans.energy import Draw, draw
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.specs.job import Job

JOB = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 8, "global_batch": 64}
WATTS = (150, 300, 450, 600, 699, 700)
NODE = 'name = "capped"\ngpu = "h100-sxm"\ngpus_per_node = 8\ndomain = 8\n'
FABRIC = '[fabric]\nkind = "nvswitch"\nrate = "450 GB/s"\n'


def setup(**options: Any) -> Setup:
    return resolve(Job(**{**JOB, **options}))


def drawn(watts: float | None, utilisation: float = 0.4, cluster: str = "dgx-h100", **update: Any) -> Draw:
    nodes = catalog.load("clusters", cluster).model_copy(update=update)
    found = draw(limited(catalog.load("gpus", "h100-sxm"), nodes, watts)[0], nodes, utilisation)
    assert found is not None
    return found


def test_fewer_watts_are_slower() -> None:
    seconds = [distsim.step(**JOB, gpu_power=watts).seconds for watts in WATTS]
    assert seconds == sorted(seconds, reverse=True)
    assert len(set(seconds)) == len(seconds)
    assert seconds[-1] == distsim.step(**JOB).seconds


@pytest.mark.parametrize(("gpu", "preset", "watts"), [
    ("h100-sxm-94gb", "h100-sxm-96gb-500w", "500 W"), ("b200-sxm", "b200-sxm-750w", "0.75 kW"),
])  # fmt: skip
def test_a_limit_is_that_of_the_part_under_it(gpu: str, preset: str, watts: str) -> None:
    stated, part = Chip(setup(gpu=gpu, gpu_power=watts)), Chip(setup(gpu=preset))
    assert stated.rate == part.rate < Chip(setup(gpu=gpu)).rate
    assert stated.narrow_rate == part.narrow_rate


def test_a_part_under_a_limit_takes_another_up_to_its_rated_power() -> None:
    part, whole = "h100-sxm-96gb-500w", Chip(setup()).rate
    assert Chip(setup(gpu=part, gpu_power=700)).rate == pytest.approx(whole)
    assert Chip(setup(gpu=part, gpu_power=600)).rate == Chip(setup(gpu_power=600)).rate < whole
    assert setup(gpu=part).gpu_power == 500
    assert setup(gpu=part, gpu_power=400).gpu_power == 400


def test_what_limits_nothing_is_told() -> None:
    above = setup(gpu_power=900)
    assert above.gpu_power is None
    assert above.accelerator == setup().accelerator
    assert any("--gpu-power 900 W has no effect: h100-sxm is rated at 700 W" in note for note in above.notes)
    assert not setup(gpu_power=700).notes
    assert "affects time, not memory" in piped("memory", "llama-7b", "--gpu-power", "300").stderr
    assert "affects time, not traffic" in piped("comm", "llama-7b", "--gpu-power", "300").stderr


@pytest.mark.parametrize(("gpu", "watts", "words"), [
    ("h100-sxm", "105", "more than 105 W, up to 700 W"), ("h100-sxm", "20W", "draws 105 W when idle"),
    ("h100-sxm", "much", "--gpu-power 'much' is not a quantity in W"), ("h100-sxm", "500 GB", "write e.g. 700 W"),
    ("h100-sxm", "0", "more than 0"), ("h100-sxm", "-5", "more than 0"), ("h100-sxm", "nan", "not a quantity"),
    ("tpu-v5p", "300", 'power = "700 W"'),
])  # fmt: skip
@pytest.mark.parametrize("command", ["step", "search"])
def test_nonsense_is_refused(command: str, gpu: str, watts: str, words: str) -> None:
    done = piped(command, "llama-7b", "--gpu", gpu, "--gpu-power", watts)
    assert done.returncode == 2 and not done.stdout
    assert words in done.stderr and done.stderr.count("error:") == 1


def test_no_more_is_drawn_than_the_limit() -> None:
    for utilisation in (0.0, 0.2, 0.4, 0.7):
        free = drawn(None, utilisation)
        for watts in WATTS:
            found = drawn(watts, utilisation)
            assert found.accelerator == min(watts, free.accelerator)
            assert (found.idle_accelerator, found.overhead) == (free.idle_accelerator, free.overhead)
            assert found.rated == pytest.approx(10_200 / 8 - 700 + watts)


def test_power_of_a_node_holds_under_the_limit_that_its_cluster_states() -> None:
    free, stated = drawn(None), drawn(None, gpu_power=500.0)
    assert stated.rated == free.rated == 10_200 / 8
    assert stated.overhead == free.overhead + 100  # half of the 200 W that the accelerators leave to the rest
    assert drawn(400, gpu_power=500.0).rated == 10_200 / 8 - 100


def test_a_preset_under_a_limit_idles_like_the_part_without() -> None:
    part, node = catalog.load("gpus", "h100-sxm-96gb-500w"), catalog.load("clusters", "grand-teton-h100-96gb")
    found = draw(part, node, 0.4)
    assert found is not None
    assert (found.accelerator, found.idle_accelerator) == (500, 105)


@pytest.mark.parametrize(("cluster", "watts"), [("alps", 660), ("jupiter", 680)])
def test_four_way_boards_of_gh200_have_less_than_one_alone(cluster: str, watts: int) -> None:
    board = resolve(Job(model="llama-7b", cluster=cluster))
    assert (board.accelerator.power, board.accelerator.rated_power, board.gpu_power) == (watts, 900, watts)
    assert board.gpu_words == f"gh200-96gb at {watts} W"
    lifted = resolve(Job(model="llama-7b", cluster=cluster, gpu_power=900))
    assert lifted.gpu_power is None and lifted.gpu_words == "gh200-96gb"
    assert Chip(lifted).rate > Chip(board).rate


def test_a_limit_of_a_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "capped.toml"
    for stated, watts in (('"500 W"', "500"), ("400", "400")):
        file.write_text(f"{NODE}gpu_power = {stated}\n{FABRIC}", encoding="utf-8")
        done = piped("step", "llama-7b", "--cluster", str(file))
        assert f"h100-sxm at {watts} W" in done.stdout
    assert "h100-sxm at 600 W" in piped("step", "llama-7b", "--cluster", str(file), "--gpu-power", "600").stdout
    file.write_text(f"{NODE}gpu_power = 90\n{FABRIC}", encoding="utf-8")
    done = piped("step", "llama-7b", "--cluster", str(file))
    assert done.returncode == 2 and "gpu_power 90 W of cluster capped" in done.stderr
    file.write_text(f"{NODE}gpu_power = 900\n{FABRIC}", encoding="utf-8")
    assert "gpu_power 900 W of cluster capped has no effect" in piped("step", "llama-7b", "--cluster", str(file)).stderr


def test_the_option_has_its_places(tmp_path: Path) -> None:
    (tmp_path / "distsim.toml").write_text('gpu = "h100-sxm"\ngpu_power = 450\n', encoding="utf-8")
    step = ("step", "llama-7b", "--json")
    for words, environment, watts in (((), {}, 450), ((), {"DISTSIM_GPU_POWER": "500W"}, 500),
                                      (("--gpu-power", "0.6kW"), {"DISTSIM_GPU_POWER": "500W"}, 600)):  # fmt: skip
        done = piped(*step, *words, folder=tmp_path, **environment)
        assert json.loads(done.stdout)["job"]["gpu_power"] == watts
    assert "project distsim.toml" in piped("step", "llama-7b", "--show-config", folder=tmp_path).stdout
    assert json.loads(piped(*step).stdout)["job"]["gpu_power"] is None
    shown = piped("pipeline", "--stages", "2", "--micro", "4", "--model", "gpt2", folder=tmp_path).stdout
    assert "gpt2 on h100-sxm at 450 W" in shown


def test_a_search_keeps_the_limit_and_prints_it() -> None:
    words = ("search", "llama-7b", "--gpu", "h100-sxm", "--gpus", "8", "--global-batch", "64", "--tp", "1,2",
             "--pp", "1", "--cp", "1")  # fmt: skip
    free = json.loads(piped(*words, "--json").stdout)["layouts"]
    found = json.loads(piped(*words, "--gpu-power", "500W", "--json").stdout)["layouts"]
    assert {one["layout"]["gpu_power"] for one in found} == {500}
    assert found[0]["seconds"] > free[0]["seconds"]
    told = piped(*words, "--gpu-power", "500W", folder=None).stdout
    assert "h100-sxm at 500 W" in told
    command = next(line for line in told.splitlines() if line.startswith("Best: ")).removeprefix("Best: distsim ")
    assert "--gpu-power 500 " in command
    again = piped(*shlex.split(command), "--json")
    assert json.loads(again.stdout)["seconds"] == pytest.approx(found[0]["seconds"])


def test_a_limit_is_varied() -> None:
    words = ("search", "llama-7b", "--gpu", "h100-sxm", "--gpus", "8", "--global-batch", "64", "--tp", "1")
    points = json.loads(piped(*words, "--gpu-power", "600", "--vary", "gpu.power", "90W,300W,1", "--json").stdout)[
        "points"
    ]
    assert points[0]["best"] is None and "idle" in points[0]["problem"]
    assert [point["best"]["layout"]["gpu_power"] for point in points[1:]] == [300, 600]


def test_mends_and_faster_layouts_keep_the_limit() -> None:
    free, capped = (distsim.step(**JOB, zero=3, gpu_power=watts) for watts in (None, 400))
    seconds = [{one.words: one.seconds for one in distsim.advise(report)} for report in (free, capped)]
    same = seconds[0].keys() & seconds[1].keys()
    assert same and all(seconds[1][words] > seconds[0][words] for words in same)


def test_a_plan_keeps_the_limit() -> None:
    words = ("plan", "llama-7b", "--tokens", "20B", "--gpu", "h100-sxm", "--gpus", "64", "--global-batch", "1024",
             "--tp", "1", "--pp", "1", "--provider", "lambda")  # fmt: skip
    free = json.loads(piped(*words, "--json").stdout)
    found = json.loads(piped(*words, "--gpu-power", "400", "--json").stdout)
    one, other = free["options"][0], found["options"][0]
    assert (one["gpu_power"], other["gpu_power"]) == (None, 400)
    assert other["gpu_hours"] > one["gpu_hours"]
    node = catalog.load("clusters", other["cluster"])
    most = drawn(400, 1.0, node.name).training / 1e3 * other["gpu_hours"] * 1.2
    assert other["energy_kwh"] <= most < drawn(None, 0.3, node.name).training / 1e3 * other["gpu_hours"] * 1.2
    told = piped(*words, "--gpu-power", "400").stdout
    assert "accelerators limited to 400 W" in told and "--gpu-power 400" in told


def test_a_plan_tells_what_the_limit_rules_out() -> None:
    words = ("plan", "llama-7b", "--tokens", "1B", "--gpu", "h100-sxm,a100-sxm4-80gb", "--gpus", "8")
    done = piped(*words, "--global-batch", "512", "--tp", "1", "--pp", "1", "--gpu-power", "80")
    assert "left out: --gpu-power 80 W leaves no power to compute: h100-sxm" in done.stderr
    assert "x a100-sxm4-80gb" in done.stdout
    assert piped(*words, "--gpu-power", "20").returncode == 2


def test_runs_may_state_a_limit() -> None:
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "8192", "global_batch": "8",
             "framework": "torchtitan", "year": "2025"}  # fmt: skip
    assert setup_of(Run({**cells, "gpu_power": "500"}, 2)).gpu_power == 500
    assert setup_of(Run(cells, 2)).gpu_power is None
    assert Run({**cells, "gpu_power": "none"}, 2).odd == ["line 2: gpu_power 'none' is not a number above 0"]
    with pytest.raises(DistsimError, match="idle"):
        setup_of(Run({**cells, "gpu_power": "50"}, 2))


def test_a_bare_number_of_watts_is_no_factor() -> None:
    with pytest.raises(DistsimError, match="200 is 200 times 700 W"):
        values_of("gpu.power", "200..700", 700)
