"""What several commands say of one job is the same in all: memory, step, comm, search, plan; tables and JSON."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest
from accepted import accepted
from shell import piped

import distsim
from distsim.specs.written import CHECKSUM, STATED
from distsim.units import GIB, duration

JOBS = 20
MODELS = ("llama-7b", "llama-3-8b", "llama-3-70b", "mixtral-8x7b", "gpt3-13b", "qwen3-30b-a3b", "deepseek-v2-lite",
          "gemma-2-9b", "gpt-oss-20b", "nemotron-3-nano-30b-a3b", "bert-large")  # fmt: skip
GPUS = ("a100-sxm4-80gb", "h100-sxm", "h200-sxm", "b200-sxm", "gb200", "mi300x", "mi355x")
FRAMEWORKS = ("megatron-core", "torchtitan", "deepspeed", "fsdp", "nanotron", "huggingface", "maxtext")
CLUSTERS = {"h100-sxm": "nebius-h100", "h200-sxm": "bm.gpu.h200.8", "b200-sxm": "dgx-b200", "mi300x": "bm.gpu.mi300x.8"}
"""Of GPUs that are rented out in whole nodes."""


def options(rng: random.Random) -> dict[str, Any]:
    """A job as a user might ask for it; many are refused."""
    tp, pp, dp, micro = (rng.choice(some) for some in ((1, 2, 4, 8), (1, 1, 2, 4), (1, 2, 4, 16), (1, 2)))
    job = {"gpu": rng.choice(GPUS), "tp": tp, "pp": pp, "gpus": tp * pp * dp, "zero": rng.choice((0, 1, 2, 3)),
           "seq": rng.choice((1024, 4096)), "micro_batch": micro, "global_batch": micro * dp * rng.choice((1, 4, 8)),
           "recompute": rng.choice(("none", "selective", "full"))}  # fmt: skip
    if rng.random() < 0.5:
        job["framework"] = rng.choice(FRAMEWORKS)
    if rng.random() < 0.3:
        job["ep"] = rng.choice((2, 4))
    if rng.random() < 0.2:
        job["precision"] = rng.choice(("fp8", "bf16-fp32-grads", "fp16"))
    return {"model": rng.choice(MODELS), **job}


JOBS_ASKED = accepted(options, 6, JOBS)


def words(job: dict[str, Any]) -> list[str]:
    flags = {f"--{name.replace('_', '-')}": f"{value}" for name, value in job.items() if name != "model"}
    return [job["model"], *(word for pair in flags.items() for word in pair)]


@functools.cache
def told(*asked: str) -> str:
    """What several tests ask, asked once."""
    done = piped(*asked)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def answer(command: str, job: dict[str, Any], *more: str) -> Any:
    text = told(command, *words(job), *more, "--json")
    return json.loads(text) if text else None


def resolved(job: dict[str, Any]) -> dict[str, Any]:
    """A job but for how it was stated."""
    return {name: value for name, value in job.items() if name not in (STATED, CHECKSUM)}


def pinned(job: dict[str, Any], resolved: dict[str, Any]) -> dict[str, Any]:
    """The job with all that a search would choose stated."""
    more = {name: resolved[name] for name in ("vpp", "ep", "etp", "cp")}
    if resolved["zero"]:
        more["zero_group"] = resolved["zero_group"]
    return {**job, **more}


@pytest.mark.parametrize("job", JOBS_ASKED, ids=lambda job: f"{job['model']}-{job['gpu']}-{job['gpus']}")
def test_memory_comm_step_and_search_tell_of_the_same_job(job: dict[str, Any]) -> None:
    memory, comm, step = (answer(command, job) for command in ("memory", "comm", "step"))
    for name, value in memory["job"].items():
        assert step["job"][name] == comm["job"][name] == value, name
    assert step["peak_memory"] == memory["peak"] and step["fits"] == memory["fits"]
    assert step == {**step, **json.loads(json.dumps(distsim.step(**job).to_dict()))}
    tokens = step["job"]["seq"] * step["job"]["global_batch"]
    assert step["tokens_per_second"] * step["seconds"] == pytest.approx(tokens)
    assert sum(step["breakdown"].values()) == pytest.approx(step["seconds"])
    assert comm["wire_bytes_per_rank"] == pytest.approx(sum(row["wire_bytes_per_rank"] for row in comm["collectives"]))
    asked = {**pinned(job, memory["job"]), "schedule": memory["job"]["schedule"]}
    found = answer("search", asked, "--all-ranks", "--top", "100")["layouts"]
    same = [one for one in found if resolved(one["layout"]) == resolved(memory["job"])]
    assert bool(same) == memory["fits"]
    for one in same:  # ranked, and perhaps a point of the front
        assert one["peak_memory"] == pytest.approx(memory["peak"], abs=4)
        for name in ("seconds", "mfu", "tokens_per_second"):
            assert one[name] == pytest.approx(step[name], rel=1e-6), name
        assert one["breakdown"] == pytest.approx(step["breakdown"], abs=1e-6 * step["seconds"])


@pytest.mark.parametrize("job", JOBS_ASKED[:6], ids=lambda job: f"{job['model']}-{job['gpu']}-{job['gpus']}")
def test_tables_tell_what_the_json_tells(job: dict[str, Any]) -> None:
    memory, step = answer("memory", job), answer("step", job)
    assert f" {memory['peak'] / GIB:,.2f} GiB" in piped("memory", *words(job)).stdout
    table = piped("step", *words(job)).stdout
    assert duration(step["seconds"]) in table and f"{step['tokens_per_second']:,.0f} tokens/s" in table


def rented() -> list[dict[str, Any]]:
    whole = [one for one in JOBS_ASKED if one["gpu"] in CLUSTERS and one["gpus"] % 8 == 0 and one["gpus"] >= 8]
    return whole[:4]


@pytest.mark.parametrize("job", rented(), ids=lambda job: f"{job['model']}-{job['gpu']}-{job['gpus']}")
def test_a_plan_has_the_step_of_the_same_layout(job: dict[str, Any]) -> None:
    place = {**{name: value for name, value in job.items() if name != "gpu"}, "cluster": CLUSTERS[job["gpu"]]}
    resolved = answer("step", place)["job"]
    asked = pinned(place, resolved)
    made = answer("plan", asked, "--tokens", "10B")
    assert made is not None
    option, cells = made["options"][0], {**asked}
    cells.pop("zero_group", None)
    for name in ("sequence_parallel", "schedule", "vpp", "recompute_layers", *["zero_group"][: asked["zero"]]):
        value = option["layout"][name]
        cells[name] = ("on" if value else "off") if isinstance(value, bool) else value
    flags = ["--sequence-parallel" if cells.pop("sequence_parallel") == "on" else "--no-sequence-parallel"]
    if cells["recompute_layers"] <= 0:
        cells.pop("recompute_layers")
    step = answer("step", cells, *flags)
    assert option["step_seconds"] == pytest.approx(step["seconds"], rel=1e-6)
    assert option["step_mfu"] == pytest.approx(step["mfu"], rel=1e-6)
    hours = option["days"] * 24 * option["gpus"]
    assert option["gpu_hours"] == pytest.approx(hours)
    assert option["dollars"] == pytest.approx(hours * option["price"]["usd_per_gpu_hour"])
    work = 10e9 / (option["global_batch"] * step["job"]["seq"]) * step["seconds"]
    assert option["days"] * 86_400 * option["goodput"] >= work


@pytest.mark.parametrize(("zero", "layers"), [(3, 2), (2, 48)])
def test_experts_that_only_tensor_parallel_ranks_share_are_held_where_they_are_gathered(zero: int, layers: int) -> None:
    """Four ranks with half of the experts each, and no data parallel ones: two gather a layer's experts from each
    other. FSDP2 holds those of a layer and of the next, or at ZeRO 2 of all layers."""
    job = {"model": "qwen3-30b-a3b", "gpu": "gb200", "gpus": 4, "tp": 4, "ep": 2, "etp": 1, "seq": 2048, "zero": zero,
           "global_batch": 8, "framework": "torchtitan"}  # fmt: skip
    rows = distsim.comm(**job).collectives
    gathered = max(row.bytes_per_call for row in rows if row.op == "all_gather" and row.role == "parameters")
    assert gathered == pytest.approx(64 * 3 * 2048 * 768 * 2)
    assert distsim.memory(**job).stages[0].categories["buffers"] == pytest.approx(layers * gathered)


def test_gradients_of_experts_that_only_tensor_parallel_ranks_share_wait_whole() -> None:
    """Put off to the last micro-batch, half of a rank's experts' gradients are another rank's, and wait in fp32."""
    job = {"model": "qwen3-30b-a3b", "gpu": "gb200", "gpus": 4, "tp": 4, "ep": 2, "etp": 1, "seq": 2048, "zero": 3,
           "global_batch": 8, "framework": "torchtitan"}  # fmt: skip
    each, late = (distsim.memory(**job, no_sync=put_off).stages[0].categories["buffers"] for put_off in (False, True))
    assert late - each == pytest.approx(48 * 64 * 3 * 2048 * 768 * 4)
