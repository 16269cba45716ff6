"""What a search tells of layouts that it could not try."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.variants import base_setup
from distsim.engine.layouts.ways import without_stages
from distsim.errors import DistsimError
from distsim.report.search import lines, simulated_lines
from distsim.report.style import Style
from distsim.specs.job import Job


@pytest.mark.parametrize(
    ("model", "framework", "bounds", "told"),
    [
        ("deepseek-v3", "maxtext", {}, True), ("deepseek-v3", "maxtext", {"pp": "1"}, False),
        ("deepseek-v3", "torchtitan", {}, False), ("llama-7b", "maxtext", {}, False),
        ("llama-3.1-405b", "maxtext", {"pp": "4..16"}, True),
        ("deepseek-v3", "megatron-core", {}, False), ("llama-3.1-405b", "megatron-core", {"pp": "4..16"}, False),
    ],
)  # fmt: skip
def test_layers_that_no_pipeline_divides(model: str, framework: str, bounds: dict[str, str], told: bool) -> None:
    base = base_setup(Job(model=model, gpu="h100-sxm", framework=framework), 64)
    notes = without_stages(base, 64, parse_bounds(bounds, []))
    assert bool(notes) is told
    if told:
        assert "no pipelines searched" in notes[0]


def test_the_event_simulation_is_told_of_pipelines_alone() -> None:
    """Beside layouts without stages the one with a pipeline is as far off as by itself."""
    job: dict[str, Any] = {"model": "mathstral-7b", "gpu": "h100-sxm", "gpus": 8, "global_batch": 16, "seq": 2048}
    plain, staged = distsim.search(**job, top=3, pp=1), distsim.search(**job, top=3, pp=8, vpp=2)
    one = replace(staged, best=staged.best[:1])
    assert simulated_lines(plain) == []
    assert simulated_lines(one) == simulated_lines(replace(one, best=(*plain.best, *one.best)))
    assert " to " in simulated_lines(staged)[0] and " to " not in simulated_lines(one)[0]


@pytest.mark.parametrize("words", [["search", "--gpus", "8"], ["plan", "--gpus", "8", "--tokens", "1B"]])
def test_what_a_file_keeps_at_one_value_is_told(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search looked at one layout out of thousands, and said nothing."""
    file = tmp_path / "job.toml"
    file.write_text(
        'model = "llama-7b"\ngpu = "h100-sxm"\ntp = 2\nmicro_batch = 1\nzero = 1\nsequence_parallel = true\n'
    )
    words = [*words, "--pp", "1", "--cp", "1"]
    assert run([*words, "--job", str(file)]) == 0
    told = capsys.readouterr().err
    free = "--tp 1.. --zero 0..3 --micro-batch 1.. --sequence-parallel on,off"
    assert f"tp, zero, micro-batch, sequence-parallel are fixed by {file}; to search them: {free}\n" in told
    assert run([*words, "--job", str(file), *free.split()]) == 0
    assert "fixed by" not in capsys.readouterr().err


def test_one_layout_draws_nothing_and_leaves_no_gap() -> None:
    report = distsim.search("llama-7b", gpu="h100-sxm", gpus=8, tp=8, zero=0, micro_batch=1, recompute="none",
                            global_batch=8, sequence_parallel="on")  # fmt: skip
    told = lines(report, Style(120, 0, unicode=True))
    assert len(report.front) == 1 and not any("Pareto" in line for line in told)
    assert all(one or other for one, other in itertools.pairwise(told))


def test_what_the_job_does_not_run_with_is_left_out_of_a_list() -> None:
    """One recipe or kind of offloading that other options exclude had ended the search of all."""
    job = {"gpu": "a100-sxm4-80gb", "gpus": 8, "seq": 4096, "global_batch": 8, "cuda_graphs": "modules", "tp": 1,
           "pp": 1, "cp": 1, "zero": 1, "top": 1}  # fmt: skip
    some = distsim.search("deepseek-v2-lite", **job, offload="all")
    assert some.best
    told = [note for note in some.notes if "left out" in note]
    assert len(told) == 1 and told[0].startswith("--offload activations, ") and "cannot be combined" in told[0]
    alone = distsim.search("deepseek-v2-lite", **job, offload="none,optimizer")
    assert alone.best[0].seconds == some.best[0].seconds and not any("left out" in note for note in alone.notes)
    for offload in ("activations", "activations,activations+optimizer"):
        with pytest.raises(DistsimError, match="cannot be combined with --offload activations"):
            distsim.search("deepseek-v2-lite", **job, offload=offload)


def test_the_recipe_of_modules_that_are_computed_again_is_told() -> None:
    job = {"gpu": "h800-sxm", "gpus": 256, "seq": 4096, "global_batch": 2048, "tp": 2, "pp": 16, "top": 1}
    found = distsim.search("deepseek-v3", **job, precision="fp8", recompute="modules")
    assert any("moe_act and layernorm again in 8 bits with --fp8-recipe" in note for note in found.notes)
