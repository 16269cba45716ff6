"""What a search tells of layouts that it could not try."""

from __future__ import annotations

import pytest

from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.variants import base_setup
from distsim.engine.layouts.ways import without_stages
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
