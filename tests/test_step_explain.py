"""What ``distsim step --explain`` tells: formulas that give what the composition adds up, and nothing left out."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import distsim
from distsim import arrays
from distsim.cli.app import run
from distsim.engine.figures import Figure
from distsim.engine.steps.figures import COMPOSED, sections
from distsim.engine.steps.kernel_figures import kernels
from distsim.formula import REGISTRY
from distsim.report.explain import amount, figure_lines
from distsim.report.step_explain import as_data, lines
from distsim.report.style import Style, bare

PLAIN = Style(80, 0, True)
JOBS: dict[str, dict[str, Any]] = {
    "one gpu": {"model": "gpt2", "gpus": 1, "seq": 1024},
    "zero 3": {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 3, "framework": "torchtitan"},
    "3d": {"model": "llama-3-70b", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "pp": 4, "vpp": 2, "global_batch": 64},
    "experts": {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 16, "ep": 8, "zero": 1, "precision": "fp8"},
    "offloaded": {"model": "llama-13b", "gpus": 8, "zero": 3, "offload": "activations", "framework": "fsdp"},
    "shards apart": {"model": "llama-13b", "gpus": 16, "pp": 2, "zero": 3, "global_batch": 32,
                     "dp_comm_overlap": False},
    "forwards first": {"model": "gemma-3-4b", "gpu": "h100-sxm", "gpus": 8, "pp": 8, "schedule": "gpipe",
                       "global_batch": 16},
    "zero bubble": {"model": "llama-13b", "gpus": 16, "tp": 2, "pp": 8, "schedule": "zb-h1", "global_batch": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", list(JOBS))
def test_the_figures_add_up_to_the_step(name: str) -> None:
    report = distsim.step(**JOBS[name])
    found = {section.title.split(" on ")[0]: list(section.figures) for section in sections(report)}
    once = [one.value for one in found["Computation of one micro-batch"][-2:]]
    once += [one.value for one in found.get("Communication of one micro-batch", ())]
    after = [one.value for one in found["After the last micro-batch"]]
    step = {figure.label.split(" (")[0]: figure.value for figure in found["The step"]}
    assert math.isclose(sum(once), step["one micro-batch"], rel_tol=1e-9)
    ramp = step.get("pipeline ramp", 0.0)
    if name == "zero bubble":
        ramp *= float(next(f.label for f in found["The step"] if "ramp" in f.label).split("(x ")[1].split()[0])
    apart = step.get("forwards and backwards paced apart", 0.0)
    assert (apart > 0) == (name == "forwards first")
    whole = step["all micro-batches"] + ramp + apart + sum(after)
    beyond = next((value for label, value in step.items() if "event simulation" in label), 0.0)
    whole = whole * (1 + step["jitter, as a share of all of the above"]) + step["fixed time per step"]
    rel = 1e-3 if name == "zero bubble" else 1e-9
    whole = whole * step["correction factor from similar runs"] + beyond
    assert math.isclose(whole, report.seconds, rel_tol=rel)
    assert math.isclose(step["step"], report.seconds, rel_tol=1e-12)


@pytest.mark.parametrize("name", list(JOBS))
def test_every_part_has_its_formula_and_source(name: str) -> None:
    for section in sections(distsim.step(**JOBS[name])):
        for figure in section.figures:
            assert figure.source and figure.source != COMPOSED, figure.label
            if figure.formula:
                assert math.isclose(REGISTRY[figure.formula].function(**figure.arguments), figure.value)


TENSOR = [{"model": "llama-2-70b", "gpu": "h100-sxm", "gpus": 32, "tp": 8, "pp": 4, "global_batch": 16}, JOBS["3d"],
          {"model": "llama-7b", "gpus": 8, "tp": 8, "global_batch": 4}]  # fmt: skip


@pytest.mark.parametrize("job", [*TENSOR, JOBS["experts"]], ids=str)
def test_no_share_of_an_exchange_is_above_one(job: dict[str, Any]) -> None:
    """Exchanges that run beside products leave seconds of their own, which are a term and no share."""
    queued = [one for part in sections(distsim.step(**job)) for one in part.figures if one.formula == "queued_seconds"]
    assert queued and all(0 <= one.arguments["share_left"] <= 1 + 1e-9 for one in queued)
    backward = [one.arguments["beside_seconds"] for one in queued if one.label == "tensor parallel, backward"]
    assert all(seconds > 0 for seconds in backward) and bool(backward) == (job in TENSOR)


def test_kernels_of_a_layer_have_their_shapes_and_times() -> None:
    [(block, found)] = kernels(distsim.step(model="llama-7b", gpus=8, zero=3))
    assert block == "dense"
    up = next(one for one in found if one.name == "mlp.up")
    assert up.shape[:3] == (2048, 2 * 11008, 4096) and 1.5 < up.backward / up.forward < 2.5
    assert all(one.forward > 0 and one.backward > 0 for one in found)


def test_the_text_and_the_data_tell_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    report = distsim.step(**JOBS["zero 3"])
    text = "\n".join(bare(line) for line in lines(report, PLAIN))
    for one in as_data(report):
        assert one["label"].split(",")[0] in text.replace("\n", " ")
    assert "waited_seconds = exposed * share_left" in text
    assert run(["step", "llama-7b", "--gpus", "8", "--zero", "3", "--explain", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"label", "value", "unit", "source", "section"} <= set(answer["figures"][0])


def test_large_numbers_have_no_decimals_and_rates_have_their_prefix() -> None:
    """It told 390,447,536,502,032.500 FLOP/s, and a best product of 794,167,000,000,000 FLOP/s."""
    assert [amount(one) for one in (390447536502032.5, 1234.5678)] == ["390,447,536,502,032", "1,234.568"]
    told = figure_lines(Figure("best product", 794.167e12, "FLOP/s", "", {}))
    assert told[0] == "best product: 794 TFLOP/s"


@pytest.mark.parametrize("name", ["3d", "experts", "wide"])
def test_explanations_are_as_narrow_as_the_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = {"model": "deepseek-v3", "gpu": "h200-sxm", "gpus": 512, "pp": 8, "ep": 32, "zero": 1}
    told = lines(distsim.step(**JOBS.get(name, wide)), PLAIN)
    assert max(map(len, map(bare, told))) <= 80


def test_a_product_that_computes_little_is_explained_at_a_copys_rate() -> None:
    """Of sixteen tokens: reading the weights takes as long as a copy of them would."""
    report = distsim.step("llama-7b", gpu="a100-sxm4-80gb", gpus=1, seq=16)
    found = [one for section in sections(report) for one in section.figures]
    (product,) = [one for one in found if one.label.endswith("seconds at that share")]
    assert product.arguments["bandwidth"] == 0.855 * 2.039e12
    assert product.value == product.arguments["size_bytes"] / product.arguments["bandwidth"]


@pytest.mark.parametrize("name", list(JOBS))
def test_each_line_can_be_computed_again(name: str) -> None:
    """Constants, helpers and what an earlier line made are filled in, too."""
    for section in sections(distsim.step(**JOBS[name])):
        for figure in section.figures:
            if not figure.formula:
                continue
            shown = [line.split(" = ", 1)[-1] for line in figure_lines(figure) if " = " in line]
            filled = shown[-2].replace(",", "_").replace("_ ", ", ")  # commas between thousands, and between arguments
            value = eval(filled, {name: getattr(arrays, name) for name in dir(arrays)})
            assert value == pytest.approx(figure.value, rel=5e-3, abs=1e-12), figure
