"""Runs of frameworks that XLA compiles: what their rows say of software, and what the compiler does with a layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import distsim
from distsim import Job, catalog, load_model
from distsim.engine.advice.faster import changes
from distsim.engine.evidence import replay
from distsim.engine.exchanges.flows import Span
from distsim.engine.footprint.saved import layer_saved_bytes
from distsim.engine.jobs.lacking import other_software, without_flash
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import NARROW_SHARE
from distsim.engine.kernels.compute import stage_compute
from distsim.engine.kernels.weights import weight_work
from distsim.engine.networks.links import network_for
from distsim.engine.networks.pricing import price
from distsim.engine.runs.attention import attention_of
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.software import recomputation_of, sharding_group
from distsim.formulas.compute import array_share, causal_fraction, head_share
from distsim.interop.runs import Run, read_runs

SHIPPED = Path(__file__).parent.parent / "presets" / "runs" / "published.csv"
CELLS = {
    "model": "llama-2-70b", "gpu": "tpu-v5p", "n_gpus": "256", "seq_len": "4096", "micro_batch": "2",
    "global_batch": "512", "precision": "bf16", "zero_stage": "3", "framework": "maxtext", "year": "2025",
}  # fmt: skip


def row(**cells: str) -> Run:
    return Run({**CELLS, **cells}, 1)


def under(policy: str) -> Setup:
    return setup_of(row(recompute=f"other:{policy}"))


def test_a_row_names_its_software_by_cell_notes_or_chip() -> None:
    assert framework_of(row()).name == "maxtext"
    assert framework_of(row(framework="nemo-mlperf")).name == "maxtext"  # nothing else runs on a TPU
    assert framework_of(row(framework="paxml")).name == "paxml"
    assert not replay(row(framework="levanter")).assumed
    assert "does not run on tpu-v5p" in replay(row(framework="nemo")).assumed
    on_gpu = {"gpu": "h100-sxm", "framework": "nemo"}
    assert framework_of(row(**on_gpu)).name == "nemo"
    assert framework_of(row(**on_gpu, notes="MaxText (JAX), per_device_batch_size 2")).name == "maxtext"
    assert framework_of(row(gpu="h100-sxm", notes="plain XLA; Paxml on JAX/XLA")).name == "paxml"


@pytest.mark.parametrize(
    "cell, options, kept",
    [
        ("", {}, None),
        ("full", {"recompute": "full"}, None),
        ("other:full", {"recompute": "full"}, None),
        ("other:minimal", {"recompute": "selective"}, ("qkv", "out", "up", "down")),
        ("other:minimal_offloaded", {"recompute": "selective", "offload": "activations"}, ("qkv", "out", "up", "down")),
        ("other:save_qkv_proj", {"recompute": "selective"}, ("qkv",)),
        ("other:selective (op)", {"recompute": "selective"}, None),
        ("other:nobody knows", {}, None),
    ],
)
def test_a_cell_of_recomputation_is_a_word_or_a_policy(cell: str, options: dict, kept: tuple | None) -> None:
    said = recomputation_of(row(recompute=cell), catalog.load("frameworks", "maxtext"))
    assert said.options == options
    assert said.kernels.get("kept") == kept


def test_policies_trade_memory_for_time() -> None:
    """From the one that keeps most to the one that keeps only a layer's input."""
    words = (
        "minimal_with_context",
        "minimal",
        "save_dot_with_context_except_mlp",
        "save_dot_except_mlp",
        "save_qkv_proj",
    )
    setups = [*map(under, words), setup_of(row(recompute="full"))]
    stages = [build_stages(one)[0] for one in setups]
    again = [stage_compute(one, stage).phases["recompute"] for one, stage in zip(setups, stages, strict=True)]
    block = stages[0].layers[0][0]
    full = [int(one.recompute == "full") for one in setups]
    saved = [layer_saved_bytes(one, block, last) for one, last in zip(setups, full, strict=True)]
    repeated = [sums.matmul for sums in again]
    assert repeated == sorted(repeated) and repeated[1] == 0 < repeated[3]
    assert again[0].attention == 0 < again[1].attention
    assert saved[0] > saved[1] > saved[2] > saved[3] > saved[4] > saved[5]


def test_saving_the_last_product_changes_nothing() -> None:
    """Backward never needs its output again, so that only what lies before is repeated, and nothing of it is kept."""
    plain, more = under("save_dot_except_mlp"), under("save_dot_except_mlpwi")
    stages = [build_stages(one)[0] for one in (plain, more)]
    sums = [stage_compute(one, stage).phases["recompute"] for one, stage in zip((plain, more), stages, strict=True)]
    assert sums[0] == sums[1]
    kept = [layer_saved_bytes(one, stages[0].layers[0][0], 0) for one in (plain, more)]
    assert kept[0] == kept[1]


def test_all_shipped_policies_are_replayed() -> None:
    runs = [run for run in read_runs(SHIPPED) if (run.text("recompute") or "").startswith("other:")]
    reasons = [found.reason for found in map(replay, runs) if "recompute" in found.reason]
    assert len(runs) > 10 and not reasons


def test_throughput_alone_is_replayed_at_the_usual_batch() -> None:
    """A step's time says nothing without its batch."""
    told = row(micro_batch="", global_batch="", tokens_per_s_per_gpu="692")
    assert setup_of(told).layout.micro_batch == 2 and "assumed 2" in replay(told).assumed
    for seconds in ("5", "5.5"):
        timed = replay(row(micro_batch="", global_batch="", step_time_s=seconds))
        assert timed.reason == "micro_batch and global_batch are blank"
    assert setup_of(row(micro_batch="")).layout.micro_batch == 2  # all that a rank has


def test_sharding_groups_of_slices_and_meshes() -> None:
    assert sharding_group(row(fsdp_kind="FSDP within slice, DP across slices"), 1024, 256, 4) == 256
    assert sharding_group(row(fsdp_kind="MaxText FSDP=128 x DP=4"), 512, 8, 4) == 128
    assert sharding_group(row(notes="ici_data_parallelism=16 ici_fsdp_parallelism=48"), 768, 8960, 4) == 48
    assert sharding_group(row(notes="ici_fsdp_parallelism=-1"), 2048, 256, 4) == 256
    assert sharding_group(row(fsdp_kind="JAX mesh DP=1 FSDP=256"), 256, 8, 4) is None
    beside = {"notes": "FSDP=4 EP=2", "ep": "2"}
    assert sharding_group(row(**beside), 8, 8, 8) is None  # what shares an expert; all eight share the rest
    assert sharding_group(row(**{**beside, "fsdp_kind": "HSDP"}), 8, 8, 8) == 4
    assert sharding_group(row(**beside), 16, 8, 8) == 4
    assert setup_of(row(fsdp_kind="MaxText FSDP=64 x DP=4")).layout.zero_group == 64


def test_unfused_attention_by_notes_and_years() -> None:
    pax = {"framework": "paxml", "gpu": "h100-sxm"}
    frame = catalog.load("frameworks", "paxml")
    assert attention_of(row(**pax, year="2023"), frame) == "eager"
    assert attention_of(row(**pax, year="2024"), frame) is None
    assert attention_of(row(**{**pax, "gpu": "a100-sxm4-80gb"}, year="2023"), frame) is None
    assert attention_of(row(**pax, notes="plain XLA; Paxml on JAX/XLA"), frame) == "eager"
    assert attention_of(row(**pax, year="2023", attention="flash"), frame) == "flash"
    megatron = {name: catalog.load("frameworks", name) for name in ("megatron-lm", "megatron-core", "nemo")}
    found = {(name, year): attention_of(row(framework=name, gpu="a100-sxm4-80gb", year=year), one)
             for name, one in megatron.items() for year in ("2022", "2023", "2024")}  # fmt: skip
    composed = {("megatron-lm", "2023")} | {(name, "2022") for name in megatron}
    assert {key for key, attention in found.items() if attention == "eager"} == composed


def test_a_compiler_moves_less_for_weights_than_modules_do() -> None:
    setup = setup_of(row())
    stage = build_stages(setup)[0]
    rules = setup.framework.traffic.model_copy(update={"partitioned": False})
    modules = replace(setup, framework=setup.framework.model_copy(update={"traffic": rules}))
    compiled, eager = (weight_work(one, stage) for one in (setup, modules))
    assert compiled.forward + compiled.backward < 0.52 * (eager.forward + eager.backward)


def test_int8_runs_on_int8_units() -> None:
    """Trillium's are twice as fast as its fp8 and bf16 ones; each product quantises both operands itself."""
    wide, narrow = (setup_of(row(gpu="tpu-v6e", precision=name)) for name in ("bf16", "int8"))
    assert narrow.precision.name == "jax-int8"
    found = [stage_compute(one, build_stages(one)[0]).phases["forward"] for one in (wide, narrow)]
    head = found[1].matmul
    assert found[1].matmul8 / (found[0].matmul - head) == pytest.approx(0.5 / NARROW_SHARE, rel=0.02)
    assert found[1].memory > 1.5 * found[0].memory


def test_model_parallel_ranks_lie_along_one_axis() -> None:
    net = network_for("tpu-v5e")
    size = 1e9
    inner, outer, whole = (
        price("all_gather", size, span.placed(net)).seconds
        for span in (Span("tp", 16, 1), Span("zero", 16, 16), Span("zero", 256, 1))
    )
    assert inner == pytest.approx(outer)
    assert inner / whole == pytest.approx(2 * (15 / 16) / (255 / 256), rel=0.01)


def test_replicas_across_slices_meet_over_their_hosts() -> None:
    net = network_for("tpu-v5e")
    inside = price("all_reduce", 1e9, Span("dp", 4, 16).placed(net)).seconds
    across = price("all_reduce", 1e9, Span("dp", 4, 256).placed(net)).seconds
    assert across > 10 * inside
    assert across == pytest.approx(2 * 3 / 4 * 1e9 / net.nic_rate, rel=0.01)
    slice_, slices = (price("all_reduce", 1e9, Span("dp", ranks, 1).placed(net)).seconds for ranks in (256, 1024))
    shares = 2 * 3 / 4 * 1e9 / (256 * net.nic_rate)  # each chip sends what it has summed up
    assert slices == pytest.approx(slice_ + shares, rel=0.01)


def test_an_all_to_all_goes_twice_as_far_in_a_cube_of_twice_the_side() -> None:
    small, large = (distsim.collective("all_to_all", cluster="tpu-v5p-pod", gpus=side**3, bytes=2**34).seconds
                    for side in (4, 8))  # fmt: skip
    assert large == pytest.approx(2 * small, rel=0.01)


def test_heads_fill_systolic_arrays_by_their_width() -> None:
    a100, h100 = 2.5e12, 6e12
    assert head_share(128, 128, a100) == head_share(256, 256, a100) == head_share(128, 0, a100) == 1
    assert head_share(128, 256, a100) == 0.5
    assert head_share(64, 0, a100) == pytest.approx(0.94, abs=0.01)  # exponentials weigh more where products are faster
    assert head_share(64, 0, h100) == pytest.approx(0.88, abs=0.01)
    assert head_share(256, 0, a100) == 1
    assert head_share(192, 128, a100) == pytest.approx(0.853, abs=0.005)  # latent: two arrays deep, half of one empty
    assert head_share(256, 128, a100) == pytest.approx(1.14, abs=0.005)  # half as many scores for vector units
    assert head_share(512, 256, a100) > head_share(256, 256, a100)


def test_a_framework_that_cannot_run_there_is_noted() -> None:
    chip = catalog.load("gpus", "tpu-v5p")
    megatron, maxtext = (catalog.load("frameworks", name) for name in ("megatron-core", "maxtext"))
    assert "--framework maxtext" in other_software(chip, megatron)
    assert not other_software(chip, maxtext)
    assert not other_software(catalog.load("gpus", "h100-sxm"), megatron)
    assert resolve(Job(model="llama-2-70b", gpu="tpu-v5p", gpus=256, framework="maxtext")).precision.name == "jax-bf16"


def test_a_systolic_array_is_filled_by_depth_and_one_other_side() -> None:
    assert array_share(4096, 28672, 8192, 128) == 1
    assert array_share(4096, 4096, 128, 256) == 0.5  # half of its rows hold nothing
    assert array_share(1, 4096, 4096, 128) == 1  # weights stand, one row streams through
    assert array_share(192, 192, 128, 128) == pytest.approx(0.75)


def test_blocks_on_the_diagonal_are_whole() -> None:
    assert causal_fraction(2048, 2048, 2048) == 1
    assert causal_fraction(8192, 8192, 2048) == pytest.approx(0.625)
    assert causal_fraction(4096, 4096) == pytest.approx((1 + 128 / 4096) / 2)
    assert causal_fraction(1024, 1024, 2048) == 1  # one block holds the sequence


THROUGHPUT = {"gpu": "tpu-v6e", "micro_batch": "", "global_batch": "", "tokens_per_s_per_gpu": "900"}


def test_a_row_of_throughput_is_run_as_the_script_of_its_model_has_it() -> None:
    setup = setup_of(row(**THROUGHPUT))
    assert setup.layout.micro_batch == 2 and setup.kernels.kept == ("qkv",) and setup.job.offload == "activations"
    assert "assumed 2 sequences" in replay(row(**THROUGHPUT)).assumed
    assert setup_of(row(**THROUGHPUT, recompute="full")).recompute == "full"
    stated = setup_of(row(**THROUGHPUT | {"micro_batch": "3"}))
    assert stated.layout.micro_batch == 3 and stated.recompute == "full"  # what fits
    experts = setup_of(row(**THROUGHPUT, model="mixtral-8x7b"))
    assert experts.layout.micro_batch == 12
    assert setup_of(row(**THROUGHPUT, model="llama-2-13b")).layout.micro_batch == 2  # no script: the usual


def test_what_no_policy_makes_fit_is_computed_again_whole() -> None:
    assert setup_of(row(gpu="tpu-v6e", micro_batch="8", global_batch="2048")).recompute == "full"


def test_a_policy_that_nobody_described_is_said() -> None:
    replayed = replay(row(recompute="other:keep_odd_layers"))
    assert "'other:keep_odd_layers' is not a policy of maxtext" in replayed.assumed
    assert "no policy" not in replay(row(recompute="other:minimal")).assumed


TRAINIUM = {"gpu": "trn1-neuroncore", "framework": "neuronx", "tp": "8", "micro_batch": "1", "global_batch": "256",
            "zero_stage": ""}  # fmt: skip


def test_neuron_composes_attention_but_for_long_sequences() -> None:
    short = setup_of(row(**TRAINIUM))
    assert short.layout.attention == "eager" and short.recompute == "selective"
    assert setup_of(row(**TRAINIUM, seq_len="8192")).layout.attention == "flash"
    assert setup_of(row(**TRAINIUM, attention="flash")).layout.attention == "flash"


def test_stochastic_rounding_all_through_names_nemo_for_neuron() -> None:
    notes = 'data type label "Autocast:BF16+SR"; Neuron SDK 2.15.0'
    whole = setup_of(row(**TRAINIUM, notes=notes))
    assert whole.framework.name == "neuronx-nemo" and whole.recompute == "full"
    assert whole.precision.name == "pure-bf16"
    large = setup_of(row(**TRAINIUM | {"tp": "32", "pp": "8", "model": "gpt3-175b", "seq_len": "2048"}, notes=notes))
    assert large.recompute == "selective"
    mixed = row(**TRAINIUM, notes='data type label "Autocast:BF16+FP32Optimizer"')
    assert framework_of(mixed).name == "neuronx"
    assert load_model("gpt3-46b").parameters == pytest.approx(46e9, rel=0.02)


def test_gaudi_runs_graphs_whatever_the_framework() -> None:
    cells = {"gpu": "gaudi2", "tp": "8", "pp": "8", "model": "gpt3-175b", "seq_len": "2048", "zero_stage": ""}
    replayed = replay(row(**cells, framework="nemo-mlperf", year="2023"))
    assert "timed like habana" in replayed.assumed and replayed.setup is not None
    y = replayed.setup.layout
    assert (y.attention, y.sequence_parallel, y.zero) == ("eager", False, 0)
    assert setup_of(row(**cells, framework="optimum-habana")).layout.attention == "flash"
    assert not replay(row(**cells, framework="habana")).assumed


def test_flash_attention_where_it_runs() -> None:
    """Chips older than today's kernels are told, and no flash attention is proposed there."""
    job = {"model": "gpt2", "gpus": 8, "micro_batch": 1, "precision": "fp16"}
    assert any(
        "today's flash attention does not run" in note for note in distsim.step(**job, gpu="v100-sxm2-32gb").notes
    )
    assert not any(
        "today's flash attention does not run" in note for note in distsim.step(**job, gpu="a100-sxm4-80gb").notes
    )
    for gpu, offered in (("v100-sxm2-32gb", False), ("a100-sxm4-80gb", True)):
        eager = distsim.step(**job, gpu=gpu, attention="eager")
        assert not any("today's flash attention does not run" in note for note in eager.notes)
        assert any(kind == "attention" for kind, *_ in changes(eager.setup)) is offered
    assert not without_flash(catalog.load("gpus", "t4"), "flash", "flash-1")
