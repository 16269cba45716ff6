"""How a row's global batch is cut where nothing says how."""

from __future__ import annotations

import pytest

import distsim
from distsim.engine.evidence import replay
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run


def _run(**cells: str) -> Run:
    told = {
        "id": "one", "source": "somebody", "year": "2026-06", "model": "llama-3-8b", "seq_len": "2048",
        "gpu": "h100-sxm", "n_gpus": "8", "gpus_per_node": "8", "tp": "1", "pp": "1", "global_batch": "32",
        "precision": "bf16", "framework": "torchtitan", "step_time_s": "1",
    }  # fmt: skip
    return Run({**told, **cells}, 2)


@pytest.mark.parametrize(
    ("cells", "micro", "steps"),
    [({}, 4, 1), ({"grad_accum": "4"}, 1, 4), ({"micro_batch": "2"}, 2, 2),
     ({"pp": "2", "year": "2025-01"}, 4, 2), ({"pp": "2"}, 1, 8)],
)  # fmt: skip
def test_torchtitan_accumulates_where_a_run_says_so(cells: dict[str, str], micro: int, steps: int) -> None:
    """A rank's share runs at once; of Qwen3.5 9B on GH200 the peaks were 48 to 54% low with one row at a time, and are
    11 to 14%. A pipeline cut its share into as many micro-batches as stages."""
    setup = replay(_run(**cells)).setup
    assert setup is not None
    assert (setup.layout.micro_batch, setup.layout.micro_batches) == (micro, steps)


def test_what_does_not_fit_at_once_is_accumulated() -> None:
    setup = replay(_run(global_batch="512", seq_len="8192")).setup
    assert setup is not None and 1 <= setup.layout.micro_batch < 64
    assert setup.layout.micro_batch * setup.layout.micro_batches == 64


def test_images_that_tensor_parallel_ranks_do_not_divide() -> None:
    """ViT-G/14 by T5X: 257 positions over 4 ranks were refused for a sequence parallelism that nobody had asked for."""
    job = {"model": "vit-large-patch16-224", "gpu": "a100-sxm4-80gb", "gpus": 8, "tp": 4}
    report = distsim.step(**job)
    assert any("does not divide the 197 tokens of an image" in note for note in report.to_dict()["notes"])
    with pytest.raises(DistsimError, match="does not divide the sequence of 197"):
        distsim.step(**job, sequence_parallel=True)


def test_tokens_that_tensor_parallel_ranks_do_not_divide() -> None:
    """PaLM's and others' odd sequences ran without sequence parallelism, whose default would have cut them."""
    job = {"model": "llama-7b", "gpu": "a100-sxm4-80gb", "gpus": 8, "tp": 4, "seq": 4097}
    report = distsim.step(**job)
    assert not report.setup.layout.sequence_parallel
    assert any("does not divide the 4,097 tokens of " in note for note in report.to_dict()["notes"])
    with pytest.raises(DistsimError, match="does not divide the sequence of 4097"):
        distsim.step(**job, sequence_parallel=True)


@pytest.mark.parametrize(("year", "micro"), [("2024", 8), ("2025-06", 1), ("", 1)])
def test_torchtitans_pipelines_cut_single_samples_since_2025(year: str, micro: int) -> None:
    """pytorch/torchtitan pull request 1073: pipeline_parallel_microbatch_size in place of as many as stages."""
    cells = {"micro_batch": "", "global_batch": "64", "pp": "4", "n_gpus": "8", "dp": "2", "year": year}
    assert setup_of(_run(**cells)).layout.micro_batch == micro


def test_torchtitans_configurations_of_large_models_compute_all_again() -> None:
    found = {name: setup_of(_run(model=name)).recompute for name in ("llama-3-8b", "qwen3-32b", "llama-3.1-70b")}
    assert found == {"llama-3-8b": "selective", "qwen3-32b": "full", "llama-3.1-70b": "full"}
    assert setup_of(_run(model="qwen3-32b", recompute="selective")).recompute == "selective"
