"""MLPs that run on one tile of tokens after another, against what torch allocates and what was published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distsim import DistsimError, Job, memory, step
from distsim.engine.jobs.resolve import resolve
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.layers.network import layer_block
from tests.shell import piped

ORACLE = json.loads((Path(__file__).parent / "oracles" / "tiled_mlp.json").read_text())
FOUR = {
    "name": "four", "family": "llama", "layers": 4, "hidden": 4096, "heads": 32, "kv_heads": 32, "head_dim": 128,
    "ffn": 11008, "vocab": 512, "context": 65536, "gated": True, "activation": "silu", "norm": "rmsnorm",
    "positions": "rotary", "tied_embeddings": False,
}  # fmt: skip


def four(**options: object) -> Job:
    usual = {"model": FOUR, "gpu": "h200-sxm", "gpus": 1, "framework": "huggingface", "precision": "pure-bf16",
             "optimizer": "adamw-fused"}  # fmt: skip
    return Job(**{**usual, **options})


@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda case: f"{case['seq']}-{case['recompute']}")
@pytest.mark.parametrize("tiles", [4, 16])
def test_what_is_kept_and_the_peak_are_torchs(case: dict[str, object], tiles: int) -> None:
    report = memory(four(seq=case["seq"], recompute=case["recompute"], mlp_tiles=tiles))
    stage = report.to_dict()["stages"][0]
    assert stage["saved"]["layers"] == pytest.approx(case["saved"], rel=0.002)
    assert max(moment["bytes"] for moment in stage["moments"]) == pytest.approx(case["peak"], rel=0.026)


PUBLISHED = (
    ({"seq": 300_000, "offload": "optimizer,parameters"}, 134.96),
    ({"seq": 650_000, "offload": "optimizer,parameters,activations"}, 126.81),
    ({"seq": 1_200_000, "offload": "optimizer,parameters,activations", "mlp_tiles": "auto"}, 136.15),
)


@pytest.mark.parametrize(("options", "gib"), PUBLISHED)
def test_published_contexts_of_one_h200_fill_it_as_measured(options: dict[str, object], gib: float) -> None:
    """snowflakedb/ArcticTraining projects/sequence-parallelism, run-h200-sp1-llama-8b-*.yml (2771b4b1): comments."""
    job = Job(model="llama-3.1-8b", gpu="h200-sxm", framework="deepspeed", zero=3, recompute="full", loss="liger",
              **options)  # fmt: skip
    assert memory(job).peak / 2**30 == pytest.approx(gib, rel=0.05)


def test_tiles_share_out_what_an_mlp_makes_and_run_its_forward_once_more() -> None:
    plain, tiled = (resolve(four(seq=8192, **more)) for more in ({}, {"mlp_tiles": 8}))
    before, after = (
        {row.name: row for row in layer_block(setup.context()).operations if row.name.startswith("mlp.")}
        for setup in (plain, tiled)
    )
    assert before.keys() == after.keys()
    for name in ("mlp.up", "mlp.activation", "mlp.down"):
        assert after[name].reruns and not before[name].reruns
        assert after[name].flops_forward == before[name].flops_forward
        assert after[name].parameters == before[name].parameters
    kept = sum(one.size_bytes for row in before.values() for one in row.saved if one.name.startswith("mlp.product"))
    inside = sum(one.size_bytes for one in after["mlp.down"].transient_forward if one.name == "mlp.product.tile")
    assert inside == pytest.approx(kept / 8)
    assert not any(row.saved for name, row in after.items() if name in ("mlp.activation", "mlp.down"))


def test_a_step_in_tiles_takes_longer_by_about_the_mlps_forward() -> None:
    plain, tiled = (step(four(seq=8192, recompute="full", **more)) for more in ({}, {"mlp_tiles": "auto"}))
    share = tiled.seconds / plain.seconds - 1
    assert 0.05 < share < 0.25  # two thirds of a layer's products are the MLP's, and forward is a quarter of its work
    assert tiled.breakdown["recompute"] > plain.breakdown["recompute"]
    assert tiled.mfu < plain.mfu


def test_auto_is_as_many_tiles_as_the_sequence_of_a_rank_is_wide() -> None:
    setups = [resolve(four(seq=65536, gpus=8, cp=cp, zero=3, mlp_tiles="auto")) for cp in (1, 8)]
    assert [setup.context().mlp_tiles for setup in setups] == [16, 2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mlp_tiles": 1}, "neither auto nor a whole number of tiles"),
        ({"mlp_tiles": "many"}, "neither auto nor a whole number of tiles"),
        ({"mlp_tiles": "auto", "lora_rank": 8}, "adapters of tiled MLPs are not described"),
        ({"mlp_tiles": "auto", "framework": "megatron-core"}, "megatron-core has no MLPs in tiles"),
        ({"mlp_tiles": "auto", "model": "mixtral-8x7b"}, "has experts and no dense MLP"),
        ({"mlp_tiles": 1025, "seq": 4096, "cp": 4, "gpus": 4}, "a rank's sequence has only 1,024 tokens"),
    ],
)
def test_tiles_that_nothing_has_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        resolve(four(**options))


def test_the_headline_tells_the_tiles_and_search_takes_them() -> None:
    words = "llama-3.1-8b --framework deepspeed --gpus 8 --gpu h100-sxm --seq 131072 --recompute full --mlp-tiles auto"
    told = piped("memory", *words.split(), "--zero", "3", "--cp", "8", "--cp-mode", "all_to_all")
    assert told.returncode == 0, told.stderr
    assert "MLPs in tiles of up to 4,096 tokens" in " ".join(told.stdout.split())
    found = piped("search", *words.split(), "--cp", "1,8", "--tp", "1", "--global-batch", "8")
    assert found.returncode == 0, found.stderr
    assert "--mlp-tiles auto" in found.stdout.split("Best: ")[1]


def test_what_does_not_fit_may_fit_in_tiles() -> None:
    words = "llama-3.1-8b --framework deepspeed --gpus 8 --gpu h100-sxm --seq 196608 --zero 3 --cp 8 --loss liger"
    told = piped("memory", *words.split(), COLUMNS="140")
    assert told.returncode == 1
    row = next(line for line in told.stdout.splitlines() if line.startswith("MLPs in tiles of tokens"))
    assert row.endswith("--mlp-tiles auto")


@pytest.mark.parametrize(
    ("notes", "tiles"),
    [
        ("ALST: tiled MLP, activation checkpoints offloaded", "auto"),
        ("tiled_mlp_compute: true", "auto"),
        ("MLP in 8 tiles", 8),
        ("without tiled MLP", None),
        ("tiled_mlp: false", None),
    ],
)
def test_notes_of_runs_tell_tiles(notes: str, tiles: object) -> None:
    cells = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "n_gpus": "8", "framework": "deepspeed", "zero_stage": "3",
             "seq_len": "65536", "micro_batch": "1", "grad_accum": "1", "recompute": "full", "precision": "bf16",
             "notes": notes}  # fmt: skip
    assert setup_of(Run(cells, 2)).job.mlp_tiles == tiles


@pytest.mark.parametrize(("tiles", "noted"), [("auto", False), (4, False), (5, True), (4096, True)])
def test_tiles_shorter_than_a_model_is_wide_are_timed_as_longer_ones_and_a_note_says_so(
    tiles: int | str, noted: bool
) -> None:
    report = step(four(seq=16384, mlp_tiles=tiles))
    assert any("are shorter than the model is wide" in note for note in report.notes) == noted
    assert report.seconds == pytest.approx(step(four(seq=16384, mlp_tiles="auto")).seconds)
