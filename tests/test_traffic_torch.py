"""Traffic held against the collectives that PyTorch issues (tests/oracles/torch_comms.md)."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.exchanges.model import replicated_gradient_flows
from distsim.engine.footprint.stored import shared_elements
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.runs.profile import framework_of
from distsim.engine.traffic import TrafficReport, comm_of
from distsim.interop.runs import Run
from distsim.layers.names import UNUSED
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.traffic import Traffic

ORACLES = Path(__file__).parent / "oracles"
CASES = {row["case"]: row for row in csv.DictReader((ORACLES / "torch_comms_cases.csv").open())}
SMALL = json.loads((ORACLES / "torch_comms_small.json").read_text())
KINDS = {
    "fsdp2": "torchtitan", "hsdp": "torchtitan", "tp": "torchtitan", "tp_sp": "torchtitan", "fsdp_tp": "torchtitan",
    "cp": "torchtitan", "ddp": "torch-ddp", "zero1": "torch-ddp", "fsdp1": "fsdp",
}  # fmt: skip
# Settings that no option names: gradients kept unsharded, greedy buckets per owner, other shards after forward.
SKIPPED = ("no_sync=keep", "zero1=bucket", "reshard=8")
LATENTS = tuple(f"attention.{which}_{row}" for which in ("query", "kv") for row in ("down", "latent_norm"))
Key = tuple[str, str, int, int]


def recorded(case: str) -> Counter[Key]:
    """(op, phase, group size, bytes of the larger side) with the number of calls."""
    found: Counter[Key] = Counter()
    for row in csv.DictReader((ORACLES / "torch_comms.csv").open()):
        if row["case"] == case:
            phase = {"optimizer": "step", "clip": "step"}.get(row["phase"], row["phase"])
            size = max(int(row["bytes_in"]), int(row["bytes_out"]))
            found[row["op"], phase, int(row["group_size"]), size] += int(row["count"])
    return found


def predicted(report: TrafficReport) -> Counter[Key]:
    found: Counter[Key] = Counter()
    for row in report.to_dict()["collectives"]:
        found[row["op"], row["phase"], row["group_size"], row["bytes_per_call"]] += row["calls"]
    return found


def options_of(case: dict[str, str]) -> dict[str, str]:
    return dict(part.split("=") for part in case["options"].split())


def precision_of(case: dict[str, str], given: dict[str, str]) -> str:
    store = given.get("store", "fp32")
    if case["kind"] in ("tp", "tp_sp", "cp"):
        return "pure-bf16"
    if case["kind"] in ("fsdp2", "hsdp", "fsdp_tp") and case["param_dtype"] == "bf16" and store == "fp32":
        return "fsdp-bf16"
    return "pure-bf16" if store == "bf16" else "fp32"


def job_of(case: dict[str, str]) -> Job:
    given, kind = options_of(case), case["kind"]
    mesh = {name: int(size) for name, size in re.findall(r"(rep|shard|dp|tp|cp)=(\d+)", case["mesh"])}
    model: Any = case["model"]
    if "/L8/" in case["case"]:
        model = load_model(model).spec.model_copy(update={"layers": 8})
    tp, cp, world = mesh.get("tp", 1), mesh.get("cp", 1), int(case["world"])
    more: dict[str, Any] = {}
    if kind in ("fsdp2", "hsdp", "fsdp_tp", "fsdp1"):
        more["zero"] = 2 if given.get("reshard") == "False" or given.get("strategy") == "SHARD_GRAD_OP" else 3
    if kind == "hsdp":
        more["zero_group"] = mesh["shard"]
    if kind in ("zero1", "cp"):
        more["zero"] = int(kind == "zero1")
    if kind == "cp":
        more["cp_mode"] = {"allgather": "all_gather", "alltoall": "ring"}[given["rotate"]]
    if kind in ("tp", "tp_sp", "fsdp_tp"):
        more |= {"sequence_parallel": "sp" in given, "loss_parallel": "loss_parallel" in given}
    if "no_sync" in given:
        more["no_sync"] = True
    return Job(
        model=model, gpus=world, framework=KINDS[kind], tp=tp, cp=cp, seq=int(case["seq"]), clip="clip" in given,
        micro_batch=int(case["micro_batch"]), recompute=case["recompute"], precision=precision_of(case, given),
        global_batch=int(case["micro_batch"]) * int(case["grad_accum"]) * (world // tp // cp), **more,
    )  # fmt: skip


def overrides_of(case: dict[str, str], job: Job) -> dict[str, Any]:
    """Settings of a framework that are no options of a job."""
    given = options_of(case)
    framework = catalog.load("frameworks", job.framework)
    traffic, buffers = framework.traffic.model_copy(update={"tail_unit": "split_root" in given}), framework.buffers
    if "bucket_mb" in given:
        size = int(given["bucket_mb"]) * 2**20
        traffic = traffic.model_copy(update={"bucket_bytes": size, "first_bucket_bytes": size})
    if case["kind"] == "fsdp1":
        traffic = Traffic(padding="unit", zero2="forward", clip=False)
    if given.get("reshard_root") == "True":
        buffers = buffers.model_copy(update={"keep_last_unit": False})
    kernels = framework.kernels.model_copy(update={"qkv_matrices": 1}) if case["model"] == "gpt2" else framework.kernels
    if case["kind"] == "cp":  # of scaled dot product attention; flex attention gathers otherwise
        kernels = kernels.model_copy(update={"attention_kernel": "sdpa"})
    if framework.traffic.recompute_stops_until:  # torchtitan of before that, as the recorded layers are
        traffic = traffic.model_copy(update={"recompute_stops_early": True})
    return {"framework": framework.model_copy(update={"traffic": traffic, "buffers": buffers, "kernels": kernels})}


ASKED = [
    name for name, case in CASES.items()
    if case["kind"] in KINDS and not any(word in name or word in case["options"] for word in SKIPPED)
]  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_collectives_of_torch(name: str) -> None:
    case = CASES[name]
    job = job_of(case)
    setup = resolve(job, overrides_of(case, job))
    if case["reduce_dtype"] == "bf16":
        precision = setup.precision.model_copy(update={"reduce_dtype": "bf16"})
        setup = type(setup)(**{**{f: getattr(setup, f) for f in setup.__dataclass_fields__}, "precision": precision})
    found = predicted(comm_of(setup))
    if case["kind"] == "cp":  # the recorded step leaves out that context parallel ranks also add up their gradients
        found = Counter({key: calls for key, calls in found.items() if key[0] != "all_reduce"})
    assert found == recorded(name)


@pytest.mark.parametrize("name", [name for name in ASKED if CASES[name]["kind"] == "tp" and "full" not in name])
def test_plans_around_fsdp_are_those_of_dtensors(name: str) -> None:
    """torch's own tensor parallelism, whoever calls it: each product of columns reduces the gradient of its input."""
    case = CASES[name]
    job = job_of(case).model_copy(update={"framework": "fsdp"})
    framework = overrides_of(case, job)["framework"]
    kernels = framework.kernels.model_copy(update={"qkv_matrices": 3})  # of the model that was recorded
    setup = resolve(job, {"framework": framework.model_copy(update={"kernels": kernels})})
    assert predicted(comm_of(setup)) == recorded(name)


@pytest.mark.parametrize("name", SMALL)
def test_collectives_of_small_models(name: str, tmp_path: Path) -> None:
    """Recomputation by operations, norms of the gradient, FSDP without shards, buffers and order of buckets of DDP."""
    case = SMALL[name]
    (tmp_path / "config.json").write_text(json.dumps(case["config"]))
    found = predicted(distsim.comm(str(tmp_path), **case["job"]))
    assert found == Counter({tuple(key): calls for *key, calls in case["calls"]})


def _rows(**job: Any) -> list[tuple[str, str, int, float, float]]:
    report = distsim.comm(gpu="h100-sxm", seq=2048, **job)
    return [(row.purpose, row.op, row.group_size, row.calls, row.bytes_per_call) for row in report.collectives]


@pytest.mark.parametrize("zero", [1, 2])
def test_deepspeed_shards_states_under_trainer(zero: int) -> None:
    """Buckets of 5e8 elements summed on all ranks, whose owners keep their parts (allreduce_and_scatter), without DDP,
    whose buckets and buffers are those of ZeRO 0."""
    rows = _rows(model="llama-3-8b", framework="huggingface", gpus=16, zero=zero)
    assert rows == _rows(model="llama-3-8b", framework="deepspeed", gpus=16, zero=zero)
    assert {row[:2] for row in rows[:-1]} == {("gradients", "all_reduce"), ("parameters", "all_gather")}
    assert any(row[0] == "buffers" for row in _rows(model="llama-3-8b", framework="huggingface", gpus=16, zero=0))
    assert not any(row[0] == "buffers" for row in _rows(model="llama-3-8b", framework="huggingface", gpus=16, zero=3))


def test_deepspeed_of_2022_reduced_to_owners_alone() -> None:
    """Pull request 4695 of November 2023 brought buckets of several ranks."""
    row = {"id": "a", "source": "s", "model": "llama-7b", "gpu": "a100-sxm4-80gb", "n_gpus": "8", "zero_stage": "2",
           "micro_batch": "1", "global_batch": "64", "precision": "fp16", "framework": "deepspeed"}  # fmt: skip
    found = [framework_of(Run({**row, "year": year}, 2)).traffic.owned_op for year in ("2023-06", "2024-01", "")]
    assert found == ["reduce_scatter", "all_reduce", "all_reduce"]


def test_no_zero_2_where_all_ranks_get_all_gradients() -> None:
    ddp = catalog.load("frameworks", "torch-ddp").model_dump()
    with pytest.raises(ValueError, match="leaves no ZeRO 2"):
        Framework.model_validate({**ddp, "supports": {"zero": [0, 1, 2]}})


def test_stages_add_up_their_norms() -> None:
    """torchtitan's clip_grad_norm_: what a stage's vector of norms comes to is one number of every stage."""
    rows = _rows(model="llama-3-8b", framework="torchtitan", gpus=16, tp=2, pp=2, zero=3, global_batch=16, clip=True)
    norms = [row[1:] for row in rows if row[0] == "gradient norm"]
    (_, shards, *_), (_, tensors, _, vector), stages = norms
    assert (shards, tensors) == (4, 2) and vector > 100 * 4
    assert stages == ("all_reduce", 2, 1, 4)


@pytest.mark.parametrize(("recompute", "calls"), [("none", 48), ("selective", 48), ("full", 96)])
def test_ranks_tell_each_other_how_many_tokens_come(recompute: str, calls: int) -> None:
    """Once a layer in forward, and again where that is computed again: selective recomputation keeps what
    all_to_all_single gives."""
    rows = _rows(model="qwen3-30b-a3b", framework="torchtitan", gpus=16, ep=8, zero=3, recompute=recompute)
    counts = [row for row in rows if row[0].startswith("expert token counts")]
    assert sum(row[3] for row in counts) == calls
    assert {row[1:3] + row[4:] for row in counts} == {("all_to_all", 8, 128 * 8)}


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c["kind"] == "pp"])
def test_messages_of_torch_pipelines(name: str) -> None:
    """What each stage sends and receives; torch does not say in which phase."""
    case = CASES[name]
    stages, stage = int(re.findall(r"pp(\d+)", name)[0]), int(re.findall(r"stage(\d+)", name)[0])
    job = Job(model=case["model"], framework="torchtitan", gpus=stages, pp=stages, seq=int(case["seq"]), micro_batch=1,
              global_batch=8, precision="pure-bf16")  # fmt: skip
    rows = comm_of(resolve(job)).stages
    sent = sum(row.calls for row in rows[stage] if row.op == "send_recv")
    sizes = {row.bytes_per_call for row in rows[stage] if row.op == "send_recv"}
    neighbours = [near for near in (stage - 1, stage + 1) if 0 <= near < stages]
    ways = {-1: "forward", 1: "backward"}
    received = sum(
        row.calls
        for near in neighbours
        for row in rows[near]
        if row.op == "send_recv" and row.phase == ways[near - stage]
    )
    found = recorded(name)
    assert sent == sum(count for key, count in found.items() if key[0] == "send")
    assert received == sum(count for key, count in found.items() if key[0] == "recv")
    assert sizes == {key[3] for key in found}


def _gathered(framework: str, gpus: int, ep: int = 1, model: str = "mixtral-8x7b") -> float:
    """Elements of experts as a rank gathers them, over those that it needs."""
    setup = resolve(Job(model=model, framework=framework, gpu="h100-sxm", gpus=gpus, ep=ep, zero=3))
    experts = [(p, n) for p, n in build_stages(setup)[0].parameters if p.group == "expert"]
    ranks = setup.layout.expert_data_parallel
    padded = sum(shared_elements(setup, parameter, ranks) * times for parameter, times in experts)
    return float(padded / sum(parameter.elements * times for parameter, times in experts))


def test_experts_are_cut_inside_where_ranks_are_more_than_they() -> None:
    """Eight experts on 64 ranks, cut by expert, are filled up to 64; torchtitan cuts each, under expert parallelism
    since 2025, without since March 2026 where layers are its own: Mixtral's are Hugging Face's."""
    assert _gathered("torchtitan", 256, ep=8) == pytest.approx(1, rel=0.01)
    assert _gathered("torchtune", 256, ep=8) == pytest.approx(32)
    assert _gathered("torchtune", 64) == pytest.approx(8)
    assert _gathered("torchtitan", 64) == pytest.approx(8)
    assert _gathered("torchtitan", 256, model="qwen3-30b-a3b") == pytest.approx(1, rel=0.01)
    assert _gathered("prime-rl", 256, model="qwen3-30b-a3b") == pytest.approx(2)
    older, newer = (framework_of(Run({"framework": "torchtitan", "year": year}, 2)) for year in ("2025", "2026"))
    assert older.traffic.experts_by_columns and not older.traffic.experts_by_columns_since
    assert newer.traffic.experts_by_columns_since
    assert older.traffic.recompute_keeps == ("reduce_scatter",) and "all_to_all" in newer.traffic.recompute_keeps
    assert _gathered("torchtune", 8) == _gathered("torchtitan", 8) == pytest.approx(1)
    steps = {
        name: distsim.step("mixtral-8x7b", framework=name, gpu="h100-sxm", gpus=256, ep=8, zero=3, seq=4096).seconds
        for name in ("torchtitan", "fsdp")
    }
    assert steps["torchtitan"] == pytest.approx(steps["fsdp"], rel=0.2)


def test_the_fullest_rank_holds_whole_experts() -> None:
    """Mixtral on 64 ranks of torch 2.13's FSDP2, 2,048 tokens, fp32 states, recorded by its FSDPMemTracker on rank 0:
    22.6 GB of parameters where a 64th is 2.9, as the first eight ranks have an expert of each layer each."""
    report = distsim.memory("mixtral-8x7b", framework="prime-rl", gpu="h100-sxm", gpus=64, zero=3, seq=2048)
    found = report.stages[0].categories
    assert any("the 8 of a layer are padded to 64" in note for note in report.setup.notes)
    assert found["parameters"] == found["gradients"] == pytest.approx(22_649_405_952, rel=1e-3)
    assert found["optimizer"] == pytest.approx(45_298_960_896, rel=1e-3)


@pytest.mark.parametrize(("gpus", "told"), [(64, False), (128, True)])
def test_experts_that_ranks_do_not_divide_are_told(gpus: int, told: bool) -> None:
    """torch 2.13 on 12 ranks: FSDP does not support uneven sharding on dim 1."""
    report = distsim.memory("gpt-oss-20b", framework="torchtitan", gpu="h100-sxm", gpus=gpus, zero=3, seq=2048)
    assert any(f"unevenly: {gpus} ranks, widths 2,880" in note for note in report.notes) is told


@pytest.mark.parametrize(("framework", "calls"), [("torchtitan", 4), ("kempnerforge", 2)])
def test_plans_that_leave_norms_of_heads_out_sum_nothing_of_them(framework: str, calls: int) -> None:
    rows = _rows(model="qwen3-8b", framework=framework, gpus=4, tp=2, zero=3)
    assert sum(row[3] for row in rows if row[0] == "replicated gradients") == 36 * calls + 1


@pytest.mark.parametrize(
    ("name", "reduced"),
    [
        ("a.x-k2-light", {"attention.norm", "mlp.norm", *LATENTS, "mlp.router",
                          *(f"{norm}.norm.gate_{way}" for norm in ("attention", "mlp") for way in ("down", "up"))}),
        ("mistral-large-4", {"attention.norm", "mlp.norm", *LATENTS, "mlp.router"}),
        ("qwen3-8b", {"attention.norm", "mlp.norm", "attention.query_norm", "attention.key_norm"}),
        ("esm2-650m", {"attention.norm", "mlp.norm"}),
    ],
)  # fmt: skip
def test_gradients_of_what_reads_cut_tokens_are_reduced_between_tensor_parallel_ranks(
    name: str, reduced: set[str]
) -> None:
    """Norms of the residual stream with their gates, and what heads and experts read, which ranks share: not an indexer
    (each rank has all tokens of its own), nor what no loss reads."""
    setup = resolve(Job(model=name, gpu="h100-sxm", gpus=2, tp=2, framework="torchtitan", precision="pure-bf16"))
    (stage,) = build_stages(setup)
    flows = replicated_gradient_flows(setup, exchange_of(setup), stage)
    moved = sum(flow.bytes_logical * flow.calls for flow in flows if flow.phase == "step")
    reads = setup.framework.traffic.replicated_gradient_reads
    ends = {"final_norm", "embedding.norm", "head.transform.norm"}
    elements = sum(
        count * one.elements for row, count in stage.operations() for one in row.parameters
        if row.name in reduced | ends and one.name != UNUSED and not one.name.endswith(".score_bias")
    )  # fmt: skip
    assert moved == reads * elements * setup.precision.gradient_bytes
