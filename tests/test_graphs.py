"""CUDA graphs and experts' exchanges beside computation: as options, in advice and search, and read from notes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import distsim
from distsim import Job
from distsim.cli.app import run
from distsim.engine.advice.faster import advise
from distsim.engine.footprint.moment import STEP
from distsim.engine.jobs.graphs import COUNTED, GROUPED, ITERATION
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.expert_rates import expert_rates
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.runs.memory import held_by
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.years import recipe_year
from distsim.engine.step import seconds_of, step_of
from distsim.engine.timelines.schedule_shape import interleaved_share
from distsim.errors import DistsimError
from distsim.interop.runs import Run, expert_routing
from distsim.interop.runs.expert_kernels import fused_experts, stashed
from distsim.interop.runs.graphs import graphs_of
from distsim.interop.runs.overlap_notes import overlaps_experts
from distsim.specs.layout import Layout

EXPERTS = {"model": "qwen3-30b-a3b", "gpus": 8, "ep": 8, "seq": 4096, "global_batch": 64, "zero": 1}
CELLS = {
    "model": "qwen3-30b-a3b", "gpu": "gb200", "n_gpus": "8", "seq_len": "4096", "micro_batch": "4", "ep": "8",
    "tp": "1", "pp": "1", "cp": "1", "global_batch": "512", "precision": "fp8-mx", "framework": "megatron-core",
    "source": "somebody's table",
}  # fmt: skip


def job(**more: Any) -> Setup:
    return resolve(Job(**{**EXPERTS, "gpu": "gb200", **more}))


def row(notes: str = "", **cells: str) -> Run:
    return Run({**CELLS, "notes": notes, **cells}, 1)


def kernels(setup: Setup) -> dict[str, Any]:
    names = ("graphs", "expert_overlap", *ITERATION, *GROUPED)
    return {name: getattr(setup.kernels, name) for name in names}


def test_graphs_of_whole_steps_bring_counts_on_the_gpu_and_grouped_experts_where_the_chip_has_them() -> None:
    plain = job()
    assert kernels(job(cuda_graphs="modules")) == {**kernels(plain), "graphs": "modules"}
    whole = {**kernels(plain), "graphs": "iteration", **ITERATION}
    assert kernels(job(cuda_graphs="iteration")) == {**whole, **COUNTED}
    assert kernels(job(cuda_graphs="iteration", precision="mxfp8")) == {**whole, **GROUPED}
    wide, narrow = (job(cuda_graphs="iteration", precision=name) for name in ("bf16", "mxfp8"))
    assert expert_rates(wide, narrow=False) == (0.77, 0.77, 0.77)  # cuBLASLt's by counts of the GPU, as torch's
    assert expert_rates(narrow, narrow=True) == (1.0, 1.0, 1.0)
    assert kernels(job(cuda_graphs="iteration", gpu="h100-sxm")) == whole
    assert plain.kernels.expert_products == "loop"
    times = [seconds_of(job(cuda_graphs=kind)) for kind in ("none", "modules", "iteration")]
    assert times == sorted(times, reverse=True) and times[0] == seconds_of(plain)
    assert times[2] < 0.6 * times[0]  # hosts issue eight kernels for each of sixteen experts


def test_packed_samples_leave_a_recipes_graphs_of_modules_out() -> None:
    """Megatron-Bridge recipes/nemotronh/nemotron_3_super.py: SFT of packed samples has none."""
    recipe = {"framework": "megatron-bridge", "model": "nemotron-3-nano-30b-a3b", "gpu": "b200-sxm"}
    packed = job(**recipe, sample_tokens=512)
    assert (job(**recipe).kernels.graphs, packed.kernels.graphs) == ("modules", "none")
    assert any("packed samples (--sample-tokens) have none" in note for note in packed.notes)
    assert job(**recipe, sample_tokens=512, cuda_graphs="modules").kernels.graphs == "modules"


def test_options_win_over_recipes() -> None:
    recipe = {"framework": "megatron-bridge", "precision": "mxfp8"}
    own = job(**recipe)
    assert (own.kernels.graphs, own.kernels.expert_overlap) == ("iteration", True)
    other = job(**recipe, cuda_graphs="none", expert_overlap=False)
    assert (other.kernels.graphs, other.kernels.expert_overlap) == ("none", False)
    assert own.to_dict()["cuda_graphs"] == "iteration" and other.to_dict()["expert_overlap"] is False


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"cuda_graphs": "modules", "framework": "torchtitan", "zero": 3},
            "torchtitan does not support --cuda-graphs modules",
        ),
        ({"expert_overlap": True, "framework": "nemo"}, "nemo does not overlap expert all-to-all with computation"),
        ({"expert_overlap": True, "model": "llama-7b", "ep": None}, "llama-7b has no experts"),
        ({"expert_overlap": True, "ep": 1}, "needs experts on several ranks"),
        ({"expert_overlap": True, "ep": 4, "pp": 2}, "with 2 pipeline stages needs several model chunks"),
        ({"expert_overlap": True, "ep": 4, "pp": 2, "schedule": "dualpipe"}, "dualpipe overlaps expert all-to-all"),
        ({"expert_overlap": False, "ep": 4, "pp": 2, "schedule": "dualpipe"}, "no-expert-overlap has no effect"),
        ({"expert_overlap": True, "recompute": "full"}, "--expert-overlap cannot be combined with --recompute full"),
        ({"expert_overlap": True, "precision": "fp32"}, "not in fp32"),
        ({"expert_overlap": True, "model": "deepseek-v3", "mtp": 2, "ep": 8}, "at most one layer of --mtp, not 2"),
        ({"cuda_graphs": "modules", "offload": "activations"}, "modules cannot be combined with --offload activations"),
        ({"cuda_graphs": "routers", "model": "llama-7b", "ep": None}, "--cuda-graphs routers has no effect"),
        ({"cuda_graphs": "routers", "recompute": "full"}, "--cuda-graphs routers cannot be combined with --recompute"),
        (
            {"cuda_graphs": "modules", "recompute": "full"},
            "--cuda-graphs modules cannot be combined with --recompute full",
        ),
    ],
)
def test_what_megatron_refuses_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DistsimError, match=problem) as told:
        job(**options)
    assert told.value.hints


def test_what_megatron_takes_is_taken() -> None:
    assert job(expert_overlap=True, ep=4, pp=2, vpp=4, global_batch=64).kernels.expert_overlap
    assert job(cuda_graphs="iteration", recompute="full").kernels.graphs == "iteration"
    assert not job(expert_overlap=False, framework="torchtitan", zero=3).kernels.expert_overlap


@pytest.mark.parametrize(("pp", "vpp", "micro"), [(1, 1, 4), (2, 3, 8), (4, 2, 8), (8, 4, 64)])
def test_the_share_that_hides_is_that_of_paired_chunks(pp: int, vpp: int, micro: int) -> None:
    """Counted in the order of interleaved 1F1B with one more forward of each stage ahead."""
    ahead = [min(2 * (pp - rank - 1) + (vpp - 1) * pp + 1, vpp * micro) if pp > 1 else 1 for rank in range(pp)]
    alone = sum(ahead) / pp / (vpp * micro)
    schedule = "interleaved-1f1b" if vpp > 1 else "1f1b"
    share = interleaved_share(Layout(pp=pp, vpp=vpp, schedule=schedule, micro_batches=micro))
    assert share == pytest.approx(max(0.0, 1 - alone))


def test_without_chunks_nothing_is_paired() -> None:
    assert interleaved_share(Layout(pp=4, vpp=1, schedule="1f1b", micro_batches=16)) == 0
    assert interleaved_share(Layout(pp=4, vpp=2, schedule="dualpipe-v", micro_batches=16)) == 1


def test_overlap_hides_exchanges_between_nodes() -> None:
    shape = {"gpu": "h100-sxm", "gpus": 32, "ep": 32, "global_batch": 256}
    apart, beside = (step_of(job(**shape, expert_overlap=one)) for one in (False, True))
    # these take longer than all that the GPU computes, which hides as much of them
    assert beside.breakdown["expert_parallel"] < 0.5 * apart.breakdown["expert_parallel"]
    assert beside.breakdown["compute"] == pytest.approx(apart.breakdown["compute"], rel=0.05)


def test_advice_proposes_what_the_framework_has_and_the_job_lacks() -> None:
    found = {one.words: one for one in advise(step_of(job(gpu="h100-sxm", gpus=32, ep=32, global_batch=256)))}
    overlapped = found["expert all-to-all overlapped"]
    again = job(gpu="h100-sxm", gpus=32, ep=32, global_batch=256, expert_overlap=True)
    assert overlapped.options == {"expert_overlap": True} and overlapped.seconds == seconds_of(again)
    graphs = next(one for one in advise(step_of(job())) if "cuda_graphs" in one.options)
    assert graphs.options == {"cuda_graphs": "iteration"}
    best = job(cuda_graphs="iteration", expert_overlap=True)
    assert not {"cuda_graphs", "expert_overlap"} & {name for one in advise(step_of(best)) for name in one.options}


BRIDGE = {"framework": "megatron-bridge", "gpu": "gb200", "precision": "bf16"}


def test_what_a_recipe_has_gives_way_to_full_recomputation(capsys: pytest.CaptureFixture[str]) -> None:
    """Megatron asserts against both together, so who recomputes whole layers has turned the others off."""
    usual, full = job(**BRIDGE), job(**BRIDGE, recompute="full")
    off = job(**BRIDGE, recompute="full", cuda_graphs="none")
    assert usual.kernels.graphs == "modules" and full.kernels == off.kernels
    assert seconds_of(full) == seconds_of(off)
    assert job(**BRIDGE, recompute="full", recompute_layers=2).kernels.graphs == "none"
    assert job(**BRIDGE, recompute="selective").kernels.graphs == "modules"
    assert job(**BRIDGE, offload="activations").kernels.graphs == "none"
    whole = {**BRIDGE, "precision": "mxfp8"}
    assert (job(**whole).kernels.graphs, job(**whole).kernels.expert_overlap) == ("iteration", True)
    again = job(**whole, recompute="full").kernels
    assert (again.graphs, again.expert_overlap) == ("iteration", False)  # graphs of whole steps go with it
    words = [f"--{name.replace('_', '-')}={value}" for name, value in {**EXPERTS, **BRIDGE}.items() if name != "model"]
    assert run(["step", str(EXPERTS["model"]), *words, "--recompute", "full"]) == 0
    assert "no CUDA graphs of modules, unlike in megatron-bridge's recipe" in capsys.readouterr().err
    routers = job(framework="megatron-bridge", model="kimi-k2", gpu="gb200", recompute="full")
    assert any("no CUDA graphs of routers, unlike" in note for note in routers.notes)


def test_searches_rank_full_recomputation_without_what_it_rules_out() -> None:
    wanted = Job.read({**{name: EXPERTS[name] for name in ("model", "seq", "global_batch")}, **BRIDGE})
    for kind, graphs in (("full", "none"), ("none", "modules"), ("none,full", "modules")):
        bounds = {"recompute": kind, "tp": "1", "cp": "1", "ep": "8", "micro_batch": "1", "zero": "1"}
        best = search(Request(wanted, (8,), parse_bounds(bounds, []), top=3)).best
        assert best[0].report.setup.kernels.graphs == graphs
        for choice in best:
            assert choice.found.seconds == pytest.approx(choice.report.seconds, rel=1e-9)


def test_search_leaves_out_layouts_that_cannot_have_what_is_asked_for() -> None:
    stated = Job(**{**EXPERTS, "ep": None, "zero": None, "gpus": None, "gpu": "h100-sxm", "expert_overlap": True})
    bounds = parse_bounds({"micro_batch": "1", "recompute": "none,full", "tp": "1", "cp": "1"}, [])
    found = search(Request(stated, (16,), bounds, top=50))
    for choice in found.best:
        y = choice.report.setup.layout
        assert y.ep > 1 and (y.pp == 1 or y.vpp > 1) and not y.recompute_layers
        assert choice.found.seconds == pytest.approx(choice.report.seconds, rel=1e-9)
        assert choice.report.setup.kernels.expert_overlap
    open_job = stated.model_copy(update={"expert_overlap": None})
    assert search(Request(open_job, (16,), bounds, top=1)).evaluated > found.evaluated
    with pytest.raises(DistsimError, match="no layout") as told:
        search(Request(stated, (16,), parse_bounds({"ep": "1"}, []), top=1))
    assert "without --expert-overlap there would be layouts" in told.value.hints


def test_a_plan_takes_both(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "qwen3-30b-a3b", "--gpu", "gb200", "--gpus", "16", "--tokens", "10B", "--global-batch", "256"]
    days = []
    for more in ([], ["--cuda-graphs", "iteration", "--expert-overlap"]):
        assert run([*words, *more, "--json"]) == 0
        days.append(min(one["days"] for one in json.loads(capsys.readouterr().out)["options"]))
    assert days[1] < 0.9 * days[0]


def test_the_pipeline_of_a_model_takes_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pipeline", "--model", "qwen3-30b-a3b", "--gpu", "gb200", "--stages", "2", "--micro", "4", "--json"]
    spans = []
    for more in ([], ["--cuda-graphs", "iteration"]):
        assert run([*words, *more]) == 0
        spans.append(json.loads(capsys.readouterr().out)["makespan"])
    assert spans[1] < spans[0]


@pytest.mark.parametrize(
    ("notes", "graphs"),
    [
        ("HybridEP, EP overlap, whole-iteration CUDA graph", "iteration"),
        ("full-iteration CUDA graphs with paged stash", "iteration"),
        ("--cuda-graph-impl=full_iteration", "iteration"),
        ("partial CUDA graphs (attn moe_router moe_preprocess)", "modules"),
        ("flags: --cuda-graph-impl=transformer_engine", "modules"),
        ("CUDA graphs of router and preprocess only; another run with full-iteration CUDA graphs took 6 s", "routers"),
        ("partial CUDA graphs (moe_router, moe_preprocess)", "routers"),
        ("CUDA graphs of moe_router and moe_preprocess", "routers"),
        ("--cuda-graph-impl=transformer_engine --cuda-graph-modules=[moe_router moe_preprocess]", "routers"),
        ("--cuda-graph-impl=transformer_engine --cuda-graph-modules=[attn mlp moe_router]", "modules"),
        ("CUDA graphs of attention, router, preprocess", "modules"),
        ("same recipe where the CUDA graph did not take effect", "none"),
        ("DeepEP, no CUDA graphs", "none"),
        ("CUDA graphs disabled", "none"),
        ("FP8_ACT=1, MCORE_CUDA_GRAPH=1", "modules"),
        ("enable_cuda_graph, manual gc", "modules"),
        ("MCORE_CUDA_GRAPH False", "none"),
        ("--no-enable_cuda_graph; enable_cuda_graph=false", "none"),
        ("mock data", None),
    ],
)
def test_graphs_that_notes_name(notes: str, graphs: str | None) -> None:
    assert graphs_of(row(notes)) == graphs
    assert setup_of(row(notes)).kernels.graphs == (graphs or "none")


@pytest.mark.parametrize(
    ("notes", "beside"),
    [
        ("1F1B overlap of the expert all-to-all", True), ("expert communication overlapped, delayed", True),
        ("HybridEP, A2A overlap", True), ("DeepEP dispatcher, a2a overlap on", True), ("A2A_OVERLAP=1", True),
        ("expert all-to-all overlapped (1F1B overlap)", True), ("EP overlap, CuTeDSL fused grouped MLP", True),
        ("--overlap-moe-expert-parallel-comm=True", True), ("no overlap of the expert all-to-all", False),
        ("HybridEP, no A2A overlap", False), ("A2A_OVERLAP=0", False), ("all-to-all dispatcher", None),
        ("overlap of the TP communication disabled", None), ("tp_comm_overlap, overlap-grad-reduce", None),
    ],
)  # fmt: skip
def test_overlap_that_notes_name(notes: str, beside: bool | None) -> None:
    assert overlaps_experts(row(notes)) is beside
    assert setup_of(row(notes)).kernels.expert_overlap is bool(beside)
    bridge = setup_of(row(notes, framework="megatron-bridge", year="2026.5"))
    assert bridge.kernels.expert_overlap is (beside is not False)  # over its recipe


def test_kernels_of_experts_that_notes_name() -> None:
    assert fused_experts(row("CuTeDSL fused grouped MLP")) and not fused_experts(row("no fused grouped MLP"))
    assert stashed(row("paged stash")) and not stashed(row("without paged stash"))
    assert setup_of(row("CuTeDSL grouped MLP")).kernels.expert_products == "grouped"
    assert setup_of(row("paged stash")).kernels.expert_counts == "device"
    other = setup_of(row("whole-iteration CUDA graph, A2A overlap, paged stash", framework="huggingface"))
    assert other.kernels.graphs == "iteration" and not other.kernels.expert_overlap


def test_fused_experts_are_of_operands_with_a_scale_per_block() -> None:
    """In bf16 Transformer Engine's fuser leaves the products and what lies between them as they are."""
    for precision, fused in (("bf16", False), ("fp8-mx", True), ("fp8", False), ("nvfp4", True)):
        of_run = setup_of(row("CuTeDSL fused grouped MLP", precision=precision, year="2026-03")).kernels
        assert (of_run.expert_products == "grouped") is fused, precision


def test_what_notes_say_of_this_run_goes_before_what_they_say_of_all() -> None:
    all_runs = "Base: all-to-all overlap, whole-iteration CUDA graph."
    assert (graphs_of(row(all_runs)), overlaps_experts(row(all_runs))) == ("iteration", True)
    assert graphs_of(row(f"{all_runs} This run: no CUDA graph.")) == "none"
    assert overlaps_experts(row(f"{all_runs} This run: all-to-all overlap off.")) is False
    assert overlaps_experts(row(f"{all_runs} This run: GBS 4096.")) is True


def test_graphs_of_modules_leave_a_recipe_of_whole_steps_out() -> None:
    cells = {"framework": "megatron-bridge", "year": "2026.5"}
    assert setup_of(row(**cells)).kernels.graphs == "iteration"
    partial = setup_of(row("partial CUDA graphs", **cells))
    assert kernels(partial) == {**kernels(setup_of(row(framework="megatron-bridge", year="2025"))), "graphs": "modules"}


def test_routers_that_notes_call_balanced() -> None:
    assert expert_routing.forced_router(row("forced balance, HybridEP"), "balanced") == "balanced"
    assert (
        expert_routing.forced_router(row("forced balanced routing; with the real router 237"), "balanced") == "balanced"
    )
    natural = "natural routing. The mock-data recipe (forced balance) took 6.5 s"
    assert expert_routing.forced_router(row(natural), "balanced") is None
    assert expert_routing.forced_router(row("router not forced to balance"), "balanced") is None


def test_a_year_without_a_month_is_its_middle_for_recipes() -> None:
    assert [recipe_year(row(year=year)) for year in ("2026", "2026.25", "2025")] == [2026.5, 2026.25, 2025.5]
    assert recipe_year(replace(row(year="2026"), cells={**CELLS, "year": "2026", "notes": "NeMo 26.02"})) < 2026.2


def test_mlperf_of_2026_has_graphs_of_whole_steps() -> None:
    cells = {"framework": "nemo-mlperf", "model": "deepseek-v3", "n_gpus": "256", "pp": "4", "vpp": "4", "ep": "32"}
    new, old = (setup_of(row(**cells, year=year)) for year in ("2026", "2025"))
    assert (new.kernels.graphs, new.kernels.expert_overlap) == ("iteration", True)
    assert (old.kernels.graphs, old.kernels.expert_overlap) == ("none", False)


def test_what_only_time_depends_on_is_told() -> None:
    job = {"model": "qwen3-30b-a3b", "gpu": "gb200", "gpus": 16, "ep": 8, "zero": 1, "seq": 4096, "global_batch": 64,
           "cuda_graphs": "iteration", "expert_overlap": True}  # fmt: skip
    for name in ("--cuda-graphs", "--expert-overlap"):
        assert f"{name} affects time, not traffic" in distsim.comm(**job).to_dict()["notes"]
    told = "--{} affects time, not memory".format
    assert told("expert-overlap") in distsim.memory(**job).setup.notes
    assert told("cuda-graphs") not in distsim.memory(**job).setup.notes  # its fixed shapes take room
    assert told("cuda-graphs") in distsim.memory(**job | {"cuda_graphs": "modules"}).setup.notes


def expert_tensors(setup: Setup) -> float:
    """Bytes that the experts of a layer keep."""
    block = build_stages(setup)[0].layers[0][0]
    return sum(
        tensor.size_bytes for one in block.operations if one.name.startswith(("mlp.experts", "mlp.dispatch"))
        for tensor in one.saved
    )  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "more", "room"),
    [
        ("bf16", {}, 1.5),  # static tensors, half of which stays empty when a router is balanced
        ("mxfp8-parameters", {}, 1.2),  # quantised ones are copied to pages
        ("bf16", {"capacity_factor": 1.0}, 1.0),  # slots are as many anyway
    ],
)
def test_graphs_of_whole_steps_fix_the_room_of_experts_tensors(
    precision: str, more: dict[str, Any], room: float
) -> None:
    asked = {"framework": "megatron-bridge", "precision": precision, **more}
    eager, whole = (job(**asked, cuda_graphs=kind) for kind in ("none", "iteration"))
    assert expert_tensors(whole) == pytest.approx(room * expert_tensors(eager))
    assert expert_tensors(job(**asked, cuda_graphs="modules")) == expert_tensors(eager)


def test_graphs_of_whole_steps_have_a_pool_beside_which_the_step_takes_its_own() -> None:
    dense = {"model": "llama-7b", "gpu": "gb200", "gpus": 8, "zero": 1, "seq": 4096, "framework": "megatron-bridge"}
    eager, whole = (distsim.memory(**dense, cuda_graphs=kind).worst for kind in ("none", "iteration"))
    shard = whole.states.dense_parameters / 8
    assert whole.counted("reserved") - eager.counted("reserved") == pytest.approx(4 * shard)
    assert whole.counted("allocated") == eager.counted("allocated")
    wide = distsim.memory(**dense, precision="bf16-fp32-grads", cuda_graphs="iteration").worst
    assert next(moment.activations for moment in wide.moments if moment.name == STEP) == 0  # nothing to copy


def test_runs_whose_optimizer_reads_narrow_gradients_say_so() -> None:
    for notes, copies in (("", True), ("Precision-aware optimizer, bf16 states", False)):
        run = row(notes)
        assert held_by(run, setup_of(run), 2026).framework.buffers.shard_gradients is copies
