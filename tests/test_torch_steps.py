"""What makes steps of torch frameworks long: limits of power, kernels by year, hooks, hosts, and what notes tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.exchanges.data import data_flows
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import stage_compute
from distsim.engine.kernels.launches import CAST_ISSUE, launches
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.kernels.weights import few_threads, host_bandwidth, optimizer_seconds, weight_work
from distsim.engine.memory import memory_of
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.step import step_of
from distsim.engine.steps.breakdown import timing_of
from distsim.engine.steps.work import OVERLAPPED_SHARE, work_of
from distsim.engine.traffic import comm_of
from distsim.formulas.caches import cached_share
from distsim.formulas.power import power_limited_share
from distsim.interop.runs import MissingCell, Run
from distsim.interop.runs.gpu_notes import gpu_of
from distsim.interop.runs.overlap_notes import overlaps_tensor_parallel
from distsim.interop.runs.recompute import recompute_options
from distsim.interop.runs.sample_lengths import lengths_of
from distsim.interop.runs.software_notes import framework_name
from distsim.specs.job import Job


def _run(**cells: object) -> Run:
    usual: dict[str, object] = {
        "model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": 8, "seq_len": 8192, "micro_batch": 1, "global_batch": 8,
        "tp": 1, "pp": 1, "zero_stage": 3, "precision": "bf16", "framework": "torchtitan", "year": 2024,
    }  # fmt: skip
    return Run({name: str(value) for name, value in {**usual, **cells}.items()}, 2)


def _setup(**options: Any) -> Setup:
    usual = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "seq": 8192, "micro_batch": 1, "global_batch": 8}
    return resolve(Job(**{**usual, **options}))


def test_products_slow_down_under_a_power_limit_and_bandwidth_does_not() -> None:
    whole, limited = (Chip(_setup(gpu=name)) for name in ("h100-sxm-94gb", "h100-sxm-96gb-500w"))
    assert (
        limited.rate / whole.rate == pytest.approx(power_limited_share(500, 700, 0.15)) == pytest.approx(0.77, abs=0.01)
    )
    assert limited.unit_rate / whole.unit_rate == pytest.approx(limited.rate / whole.rate, rel=0.3)
    assert limited.bandwidth == whole.bandwidth
    assert power_limited_share(700, 700, 0.15) == 1


def test_small_tensors_are_found_in_the_cache() -> None:
    """What a kernel writes is there for the next while twice as much fits in 0.65 of the cache; not once it alone is
    larger than that."""
    shares = [cached_share(2 * size, 50 * 2**20) for size in (1e5, 16e6, 2**25, 1e9)]
    assert shares == [0.55, 0.55, pytest.approx(0.99, abs=0.02), 1]
    assert cached_share(1e8, 0) == 1


def test_torch_attends_with_cudnn_by_year_and_chip() -> None:
    def rate(year: int, gpu: str, **cells: object) -> float:
        return Chip(setup_of(_run(year=year, gpu=gpu, **cells))).attention[0]

    assert rate(2024, "h100-sxm") == pytest.approx(0.58)
    assert rate(2026, "h100-sxm") == rate(2025, "b200-sxm") == rate(2024, "a100-sxm4-80gb") == 1
    assert rate(2024, "h100-sxm", attention="flash-3") == 1
    assert rate(2025, "h100-sxm", framework="litgpt") == pytest.approx(0.58)


def test_norms_are_composed_before_torch_fuses_them_unless_compiled() -> None:
    assert setup_of(_run(year=2025)).kernels.norm == "eager"
    assert setup_of(_run(year=2025, compile=1)).kernels.norm == "fused"
    assert setup_of(_run(year=2026)).kernels.norm == "fused"
    assert _setup(framework="fsdp", compile=True).kernels.norm == "fused"


def test_offloaded_states_are_updated_at_the_hosts_bandwidth() -> None:
    on_gpu = _setup(framework="deepspeed", zero=3)
    on_host = replace(on_gpu, offload=("optimizer",))
    stage = build_stages(on_gpu)[0]
    ratio = optimizer_seconds(on_host, stage) / optimizer_seconds(on_gpu, stage)
    assert ratio == pytest.approx(3350e9 * 8 / 614e9)  # eight ranks share two sockets of DDR5
    assert host_bandwidth(None) == 256e9
    grace = catalog.load("gpus", "gh200-96gb").host
    assert host_bandwidth(grace) == 500e9


@pytest.mark.parametrize(("cluster", "sharers"), [("jupiter", 1), ("gb200-nvl72", 2), ("dgx-h100", 8)])
def test_states_share_the_memory_of_one_host(cluster: str, sharers: int) -> None:
    """A GH200 has a Grace of its own, two GB200 share one, and eight H100 two sockets."""
    on_gpu = _setup(framework="nemo", gpu=None, cluster=cluster, gpus=8, zero=1)
    stage = build_stages(on_gpu)[0]
    part = stage, replace(on_gpu, offload=("optimizer",))
    filled = (
        on_gpu.precision.gradient_bytes
        * sum(p.elements * n for p, n in stage.held())
        / on_gpu.accelerator.pass_bandwidth
    )
    seconds = [optimizer_seconds(setup, stage) - filled for setup in (on_gpu, part[1])]
    host = host_bandwidth(on_gpu.accelerator.host)
    assert seconds[1] / seconds[0] == pytest.approx(on_gpu.accelerator.pass_bandwidth * sharers / host)


def test_ranks_with_one_thread_do_not_reach_their_share_of_the_host() -> None:
    """torchrun gives each of several ranks one thread; a rank that is alone has all cores, and so has DeepSpeed's."""
    rates = {}
    for framework, gpus in (("torchtune", 8), ("torchtune", 1), ("deepspeed", 8)):
        on_gpu = _setup(framework=framework, gpu="h100-sxm", gpus=gpus, zero=3 if gpus > 1 else 0)
        stage = build_stages(on_gpu)[0]
        on_host = replace(on_gpu, offload=("optimizer",))
        rates[framework, gpus] = 3350e9 * optimizer_seconds(on_gpu, stage) / optimizer_seconds(on_host, stage)
        assert bool(few_threads(on_host)) == ((framework, gpus) == ("torchtune", 8))
        assert few_threads(on_gpu) == ""
    assert rates["torchtune", 8] == pytest.approx(27e9)
    assert rates["deepspeed", 8] == pytest.approx(614e9 / 8)
    found = distsim.step(
        "llama-3-8b", gpu="h100-sxm", gpus=8, framework="torchtune", zero=3, offload="optimizer,parameters"
    )
    assert any("OMP_NUM_THREADS=3 would make that 2.8 times as fast" in note for note in found.notes)


def test_a_thread_of_a_grace_is_no_faster() -> None:
    on_gpu = _setup(framework="torchtune", gpu="gb200", gpus=8, zero=3)
    stage = build_stages(on_gpu)[0]
    seconds = [optimizer_seconds(one, stage) for one in (on_gpu, replace(on_gpu, offload=("optimizer",)))]
    assert on_gpu.accelerator.pass_bandwidth * seconds[0] / seconds[1] == pytest.approx(27e9)


def test_host_and_gpu_update_what_each_holds() -> None:
    """Megatron's --optimizer-offload-fraction; states that come back (--offload-optimizer-states) the GPU updates."""
    cells = {"framework": "megatron-core", "zero_stage": 1}
    returned = {"offload": "optimizer", "notes": "--offload-optimizer-states"}
    told: list[dict[str, str]] = [{}, {"offload": "optimizer"}, {"offload": "optimizer 0.5"}, returned]
    none, whole, half, back = (setup_of(_run(**cells, **one)) for one in told)
    stage = build_stages(none)[0]
    seconds = [optimizer_seconds(one, stage) for one in (none, whole, half, back)]
    filled = 2 * seconds[2] - seconds[1]
    assert 0 < filled < seconds[0] == seconds[3] < seconds[2] < seconds[1]
    held = [float(memory_of(one).worst.states.optimizer) for one in (none, whole, half, back)]
    assert held[1] == held[3] == 0 and held[2] == pytest.approx(held[0] / 2)
    sent = [sum(float(row.bytes_per_call * row.calls) for row in comm_of(one).stages[0] if "host" in row.op)
            for one in (whole, half, back)]  # fmt: skip
    assert sent[1] == pytest.approx(sent[0] / 2) and sent[2] == pytest.approx(2 * held[0])


@pytest.mark.parametrize(
    ("framework", "filled"), [("megatron-core", 4), ("nanotron", 4), ("deepspeed", 0), ("fsdp", 0), ("maxtext", 0)]
)
def test_gradients_are_set_to_zero_where_they_live_in_buffers(framework: str, filled: int) -> None:
    """Megatron and nanotron fill fp32 ones in every step; others make them anew."""
    setup = _setup(framework=framework, gpu="h100-sxm", precision="bf16-fp32-grads")
    bare = setup.framework.traffic.model_copy(update={"zeroes_gradients": False})
    stage = build_stages(setup)[0]
    without = replace(setup, framework=setup.framework.model_copy(update={"traffic": bare}))
    held = sum(p.elements * n for p, n in stage.held())
    found = optimizer_seconds(setup, stage) - optimizer_seconds(without, stage)
    assert found == pytest.approx(filled * held / 3350e9, abs=1e-9)


def test_foreach_optimizers_pass_over_states_again() -> None:
    """20 accesses where a fused kernel has 7; clipping takes the same three of both."""
    cells = {"framework": "huggingface", "precision": "fp32"}
    fused, foreach = (_setup(**cells, optimizer=name) for name in ("adamw", "adamw-foreach"))
    stage = build_stages(fused)[0]
    assert optimizer_seconds(foreach, stage) / optimizer_seconds(fused, stage) == pytest.approx(23 / 10, rel=2e-3)


def test_the_same_modules_cost_the_host_the_same_whatever_shards_them() -> None:
    """DDP and FSDP wrap transformers' modules, whose operations are counted one by one as its Trainer's are."""
    bare = {
        name: timing_of(_setup(framework=name)).kernel_issue_seconds for name in ("torch-ddp", "fsdp", "huggingface")
    }
    assert bare["torch-ddp"] == bare["fsdp"] == pytest.approx(bare["huggingface"], rel=0.1)


def test_deepspeed_hooks_each_module_under_zero_3() -> None:
    def hooks(**options: Any) -> float:
        setup = _setup(**options)
        return float(weight_work(setup, build_stages(setup)[0]).hooks)

    modules = 32 * 9 + 3  # four products of attention, three of the MLP, two norms; embedding, last norm, head
    assert hooks(framework="deepspeed", zero=3) == 9 * modules
    assert hooks(framework="deepspeed", zero=2) == hooks(framework="torchtitan", zero=3) == 0
    setup = _setup(framework="deepspeed", zero=3)
    phases = stage_compute(setup, build_stages(setup)[0]).phases
    bare = replace(setup, layout=setup.layout.with_(zero=2))
    less = stage_compute(bare, build_stages(bare)[0]).phases
    assert phases["forward"].kernels - less["forward"].kernels == 9 * modules
    assert phases["backward"].kernels - less["backward"].kernels == 18 * modules
    assert phases["recompute"].kernels == 0
    again = replace(setup, layout=setup.layout.with_(recompute_layers=8))
    plain = replace(bare, layout=bare.layout.with_(recompute_layers=8))
    repeated, without = (stage_compute(one, build_stages(one)[0]).phases["recompute"] for one in (again, plain))
    assert repeated.kernels - without.kernels == 9 * modules * 8 / 32


def test_torch_pipelines_gather_once_per_step() -> None:
    def calls(**options: Any) -> float:
        setup = _setup(framework="torchtitan", gpus=16, global_batch=64, **options)
        flows = data_flows(setup, exchange_of(setup), build_stages(setup)[0])
        return sum(float(flow.calls) for flow in flows if flow.purpose == "parameters")

    assert calls(pp=2, zero=2) == 17  # 16 layers and the embedding
    assert calls(pp=2, zero=3) == 17
    setup = setup_of(_run(pp=4, n_gpus=32, micro_batch="", global_batch=64))
    assert (setup.layout.zero, setup.layout.micro_batches, setup.layout.micro_batch) == (3, 4, 2)


def test_asynchronous_tensor_parallelism_hides_a_part() -> None:
    plain, hidden = (
        work_of(setup_of(_run(tp=8, n_gpus=64, notes=notes))).stages[0].traffic for notes in ("vanilla TP", "async TP")
    )
    assert hidden["tp_forward"] == pytest.approx(plain["tp_forward"] * OVERLAPPED_SHARE)
    assert hidden["reduce"] == plain["reduce"]
    assert overlaps_tensor_parallel(_run(notes="1F1B, AsyncTP; x")) and not overlaps_tensor_parallel(_run())


def test_what_only_runs_compiled_is_compiled() -> None:
    async_tp = _run(tp=8, n_gpus=64, compile="0", notes="Float8 + Async TP")
    assert setup_of(async_tp).job.compile and not setup_of(_run(compile="0")).job.compile
    table = {"source": "pytorch/torchtitan docs/performance.md", "compile": "0"}
    assert setup_of(_run(**table, precision="fp8")).job.compile and not setup_of(_run(**table)).job.compile
    assert not setup_of(_run(compile="0", precision="fp8")).job.compile  # a user's own eager run
    assert not setup_of(_run(framework="nanotron", notes="async TP")).job.compile


def test_notes_name_parts_and_frameworks() -> None:
    assert gpu_of(_run(notes="H100 96GB at 500W power limit")) == "h100-sxm-96gb-500w"
    assert gpu_of(_run(notes="H100 95 GiB (HBM2e) per log")) == "h100-sxm-94gb"
    assert gpu_of(_run(gpu="b200-sxm", notes="500W power limit")) == "b200-sxm"
    assert framework_name(_run(framework="torchtune", notes="8 GPUs, torchtitan, bs 1")) == "torchtitan"
    assert framework_name(_run(framework="torchtune", notes="recipe")) == "torchtune"


def test_composer_reduces_in_the_format_that_rows_name() -> None:
    def reduced(notes: str) -> str:
        return setup_of(_run(framework="llm-foundry", notes=notes)).precision.reduce_dtype

    assert (reduced("MP mode PURE"), reduced("MP mode DEFAULT")) == ("bf16", "fp32")
    assert _setup(framework="llm-foundry").precision.name == "fsdp-pure"


def test_every_second_layer_is_computed_again() -> None:
    setup = setup_of(_run(recompute="other:selective layer"))
    assert (setup.recompute, setup.layout.recompute_layers, setup.layout.selective) == ("full", 16, 0)
    assert recompute_options(_run(recompute="other:selective (op)")) == {"recompute": "selective"}
    assert recompute_options(_run(recompute="")) == {}


def test_samples_of_a_micro_batch_are_filled_up_to_the_longest() -> None:
    def mean(samples: int) -> int:
        found = lengths_of(_run(micro_batch=samples, notes="max_length 2048 (cap; mean 3234+-2548 tokens)"))
        assert found is not None and found.longest == 2048
        return found.mean

    assert mean(1) == 1121
    assert [round(mean(n) / mean(1), 2) for n in (2, 4)] == [1.28, 1.50]


def test_lengths_below_a_cap_must_be_told() -> None:
    with pytest.raises(MissingCell, match="only an upper limit"):
        setup_of(_run(framework="torchtune", notes="max seq 4096 UNPACKED (real length shorter)"))


def test_layers_spread_over_gpus_run_one_gpu_at_a_time() -> None:
    notes = "naive device_map model parallel; max taken"
    setup = setup_of(
        _run(framework="huggingface", n_gpus=2, pp="", zero_stage="", dp=1, global_batch=16, finetune_kind="full",
             notes=notes)
    )  # fmt: skip
    assert (setup.layout.pp, setup.layout.dp, setup.layout.schedule) == (2, 1, "naive")


def test_full_parameter_scripts_run_on_deepspeed_whatever_the_gpus() -> None:
    cells = {"framework": "huggingface", "n_gpus": 1, "zero_stage": "", "finetune_kind": "full"}
    assert setup_of(_run(**cells, notes='method "Full-parameter"')).layout.zero == 3
    assert setup_of(_run(**cells)).optimizer.name == "adamw-foreach"


def test_merging_rings_costs_memory_traffic() -> None:
    merged = [
        moved_bytes(setup, next(one for one in layer.operations if one.name == "attention.exchange"))
        for setup in (_setup(framework="torchtitan", cp=cp, cp_mode="ring") for cp in (2, 8))
        for layer in (build_stages(setup)[0].layers[0][0],)
    ]
    queries = [8192 / cp * 4096 for cp in (2, 8)]
    assert [pair[0] for pair in merged] == [46 * size * steps for size, steps in zip(queries, (1, 7), strict=True)]
    assert all(pair[1] / pair[0] == pytest.approx(60 / 46) for pair in merged)


@pytest.mark.parametrize(("framework", "loss"), [("huggingface", True), ("torch-ddp", True), ("litgpt", False)])
def test_trainers_of_transformers_compile(framework: str, loss: bool) -> None:
    """--compile had been refused, and cells that say it had no effect: Llama 3.2 1B on H200 came out 20% too slow."""
    job = {"model": "llama-3.2-1b", "gpu": "h200-sxm", "gpus": 2, "seq": 8192, "micro_batch": 4, "framework": framework,
           "zero": 0, "precision": "amp-bf16"}  # fmt: skip
    eager, compiled = (distsim.step(**job, compile=compile) for compile in (False, True))
    assert 0.6 < compiled.seconds / eager.seconds < 0.95
    assert compiled.memory.peak < 0.9 * eager.memory.peak
    assert (compiled.setup.kernels.loss == "fused") is loss


@pytest.mark.parametrize(
    ("cells", "hooks"),
    [({"fsdp_kind": "FSDP2"}, False), ({"fsdp_kind": "FULL_SHARD"}, False), ({"framework": "Accelerate FSDP"}, False),
     ({"fsdp_kind": "DeepSpeed ZeRO-3"}, True), ({"zero_stage": "3"}, True)],
)  # fmt: skip
def test_fsdp_under_transformers_has_no_hooks_of_deepspeed(cells: dict[str, str], hooks: bool) -> None:
    usual = {"model": "qwen3-1.7b", "gpu": "h100-sxm", "n_gpus": "2", "seq_len": "2048", "micro_batch": "1",
             "framework": "huggingface", "source": "somebody"}  # fmt: skip
    assert (framework_of(Run({**usual, **cells}, 2)).traffic.module_hooks > 0) is hooks


@pytest.mark.parametrize(
    ("cells", "hooks", "adapters"),
    [({"fsdp_kind": "FSDP2"}, 12, False), ({"fsdp_kind": "FULL_SHARD"}, 12, True), ({"zero_stage": "3"}, 0, False),
     ({"framework": "FSDP1"}, 12, True), ({"framework": "mindspore"}, 12, True)],
)  # fmt: skip
def test_units_of_fsdp_cost_the_host_where_fsdp_shards(cells: dict[str, str], hooks: float, adapters: bool) -> None:
    usual = {"model": "qwen3-1.7b", "gpu": "h100-sxm", "n_gpus": "2", "seq_len": "2048", "micro_batch": "1",
             "framework": "huggingface", "source": "somebody"}  # fmt: skip
    framework = framework_of(Run({**usual, **cells}, 2))
    assert (framework.traffic.unit_hooks, framework.adapters.units) == (hooks, adapters)


def test_each_adapters_matrix_is_a_unit_of_fsdp() -> None:
    """Two for each of seven products, and the layer itself, whose hooks run in forward, again, and twice in backward
    (0.7 of the time each): a short step with adapters waits for them, all else equal; a long one does not."""
    from distsim.engine.steps.stage_seconds import BACKWARD_ISSUE

    job: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": 8, "framework": "fsdp",
                           "micro_batch": 1, "global_batch": 8, "recompute": "full", "lora_rank": 16,
                           "lora_targets": "all-linear"}  # fmt: skip
    framework = catalog.load("frameworks", "fsdp")
    bare = framework.model_copy(update={"traffic": framework.traffic.model_copy(update={"unit_hooks": 0})})
    once = framework.model_copy(update={"adapters": framework.adapters.model_copy(update={"units": False})})
    more = {}
    for seq in (512, 16384):
        setup = resolve(Job(**job, seq=seq))
        found, free, layers = (step_of(replace(setup, framework=one)) for one in (framework, bare, once))
        issue = found.timing.kernel_issue_seconds * 12 * (2 + 2 * BACKWARD_ISSUE)
        more[seq] = (found.seconds - free.seconds) / (issue * (32 * 15 + 1))
        assert layers.seconds - free.seconds <= issue * 33 * 1.05
    assert 0.8 < more[512] <= 1.05 and more[16384] < 0.2


def test_autocast_casts_around_every_product() -> None:
    """Input, weight and bias of each of six products of BERT's layer, each way; a compiler fuses them."""
    found = {}
    for name, more in {"narrow": {"precision": "pure-bf16"}, "cast": {"precision": "amp-bf16"},
                       "compiled": {"precision": "amp-bf16", "compile": True}}.items():  # fmt: skip
        setup = resolve(Job(model="bert-base", gpu="a100-sxm4-80gb", framework="huggingface", **more))
        layer = build_stages(setup)[0].layers[0][0]
        qkv = next(one for one in layer.operations if one.name == "attention.qkv")
        found[name] = launches(setup, qkv)
    assert found["cast"].kernels[0] - found["narrow"].kernels[0] == 9
    assert found["cast"].kernels[1] - found["narrow"].kernels[1] == 9
    assert found["cast"].issued[0] - found["narrow"].issued[0] == pytest.approx(9 * CAST_ISSUE)
    assert found["compiled"].kernels[0] < found["cast"].kernels[0]
