"""Values of another type than an option takes, from Python: one clear error, short whatever was given."""

from __future__ import annotations

from typing import Any

import pytest

import distsim


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"compile": "x" * 5000}, "compile 'xxx"),
        ({"compile": "x" * 5000}, "… (5,002 characters) is not true or false"),
        ({"lora_rank": list(range(300))}, "… (1,390 characters) is not a whole number"),
        ({"offload": [1, 2], "offload_modules": "mlp_norm"}, "offload: '1,2,activations' is not a choice"),
    ],
)
def test_of_a_job(options: dict[str, Any], told: str) -> None:
    with pytest.raises(distsim.DistsimError) as caught:
        distsim.Job(model="llama-7b", **options)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"chunks": "x", "balance": (1, 2)}, "chunks is 'x', not a whole number"),
        ({"placement": 1, "model": "llama-7b"}, "placement is 1"),
        ({"placement": True, "job": {"gpus": 8}}, "placement is True"),
    ],
)
def test_of_a_pipeline(options: dict[str, Any], told: str) -> None:
    with pytest.raises(distsim.DistsimError) as caught:
        distsim.pipeline(stages=4, micro=8, **options)
    assert str(caught.value).startswith(told)
