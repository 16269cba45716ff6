"""Software over one compiler that differs in its settings: how much of a batch it takes at once, what it computes
again, how it holds weights, and whose speed stands for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distsim import Job, catalog, load_model, memory, step
from distsim.engine.corrections.known_runs import evidence
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.kernels.expert_rates import expert_rates
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.steps.breakdown import breakdown_of, timing_on
from distsim.engine.steps.compose import stage_numbers
from distsim.engine.steps.intervals import group_names
from distsim.engine.steps.work import work_of
from distsim.interop.runs import Run
from distsim.specs.timing import Kin, Timing, combined

CELLS = {
    "model": "llama-2-7b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "2048", "global_batch": "64",
    "precision": "bf16", "framework": "maxtext", "year": "2026",
}  # fmt: skip

LOOPS = ("plain-torch", "torch-ddp", "torch-compile", "huggingface", "fsdp", "llm-foundry")


def row(**cells: str) -> Run:
    return Run({**CELLS, **cells}, 1)


@pytest.mark.parametrize(
    ("cells", "micro_batch"),
    [
        ({}, 8), ({"framework": "levanter"}, 8), ({"framework": "axlearn"}, 8),
        ({"grad_accum": "4"}, 2), ({"micro_batch": "2"}, 2), ({"tp": "2"}, 16),
        ({"model": "llama-3-8b", "seq_len": "65536", "recompute": "full"}, 1),  # more than one sequence does not fit
        ({"framework": "torchtitan"}, 8), ({"framework": "megatron-core"}, 1),  # whose own is one
        *(({"framework": name, "model": "gpt2"}, 8) for name in LOOPS),
    ],
)  # fmt: skip
def test_batches_are_taken_at_once_where_they_fit(cells: dict[str, str], micro_batch: int) -> None:
    assert setup_of(row(**cells)).layout.micro_batch == micro_batch


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        ({"framework": "axlearn"}, "axlearn"), ({"framework": "AXLearn 0.1"}, "axlearn"),
        ({"notes": "AXLearn (JAX; timed like MaxText here)"}, "axlearn"),
        ({"framework": "levanter"}, "levanter"), ({"framework": "Levanter (JAX)"}, "levanter"),
        ({"notes": "Levanter; 128 chips"}, "levanter"), ({"framework": "T5X"}, "t5x"), ({"framework": "t5x+te"}, "t5x"),
        ({"framework": "easylm"}, "maxtext"), ({"framework": "pax"}, "paxml"),
    ],
)  # fmt: skip
def test_rows_name_software_of_jax(cells: dict[str, str], name: str) -> None:
    assert framework_of(row(**cells)).name == name


@pytest.mark.parametrize(
    ("notes", "gpu"),
    [("p_state 7", "tpu-v7x-p7"), ("--xla_tpu_dvfs_p_state=7", "tpu-v7x-p7"), ("p_state 3", "tpu-v7x")],
)
def test_notes_tell_the_state_of_a_chips_clock(notes: str, gpu: str) -> None:
    setup = setup_of(row(gpu="tpu-v7x", notes=notes))
    assert (setup.accelerator.name, setup.cluster.gpu) == (gpu, gpu)


def test_what_they_compute_again() -> None:
    axlearn, levanter, t5x = (
        setup_of(row(framework=name, model="llama-3.2-1b")) for name in ("axlearn", "levanter", "t5x")
    )
    assert (axlearn.recompute, axlearn.kernels.kept) == ("selective", ("qkv", "context", "out"))
    assert (levanter.recompute, t5x.recompute) == ("full", "none")
    assert (axlearn.layout.zero, levanter.layout.zero, t5x.layout.zero) == (3, 3, 0)
    saved = setup_of(row(framework="axlearn", recompute="other:dots_saveable"))
    assert saved.kernels.kept == ("qkv", "out", "up", "down")


def test_levanter_bounds_what_experts_are_sent_and_holds_no_logits() -> None:
    options = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 8, "ep": 8}
    levanter, maxtext = (resolve(Job(**options, framework=name)).kernels for name in ("levanter", "maxtext"))
    assert (levanter.expert_buffers, maxtext.expert_buffers) == ("exact", "worst")
    assert (levanter.expert_slots, levanter.loss, maxtext.loss) == ("indexed", "cut", "fused")
    assert setup_of(row(framework="levanter", year="2023")).kernels.loss == "fused"


def test_experts_written_in_triton_on_blackwell() -> None:
    """397, 584, 736 and 859 TFLOP/s of 1,515 with 64, 32, 16 and 8 experts on a rank (marin's B200MFU-017)."""
    cells = {"model": "qwen3-30b-a3b", "gpu": "b200-sxm", "framework": "levanter", "recompute": "full"}
    for ep, share in ((2, 397 / 1515), (4, 584 / 1515), (8, 736 / 1515)):
        setup = setup_of(row(**cells, ep=str(ep)))
        found = expert_rates(setup, narrow=False)
        assert found[0] == pytest.approx(share, rel=0.06)
    assert expert_rates(setup_of(row(**cells, notes="sonic_cute MoE")), narrow=False) == (1, 1, 1)
    assert expert_rates(setup_of(row(**{**cells, "gpu": "h100-sxm"})), narrow=False) == (1, 1, 1)


def kin(name: str) -> Kin:
    return kin_of(catalog.load("frameworks", name))


@pytest.mark.parametrize(
    ("software", "relative"), [("axlearn", "maxtext"), ("levanter", "maxtext"), ("t5x", "paxml"),
                               ("tensorflow", "maxtext"), ("kempnerforge", "torchtitan")]
)  # fmt: skip
def test_speed_is_a_relatives_until_there_are_runs(software: str, relative: str) -> None:
    name, like = kin(software), kin(relative)
    assert name.like == relative
    assert timing_on(name, "hopper") == timing_on(like, "hopper") != timing_on(kin("alpa"), "hopper")
    assert evidence(name) == evidence(like) != ()
    assert group_names(name, "hopper", "near")[-1] == "any near"
    assert set(group_names(like, "hopper", "near")) < set(group_names(name, "hopper", "near"))
    own = combined({"framework": {software: {"matmul": 0.5}, relative: {"matmul": 0.9}}}, name, "hopper")
    assert own.matmul == pytest.approx(0.5 * combined({}, name, "hopper").matmul)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("t5-v1.1-small", 76_961_152), ("t5-v1.1-base", 247_577_856), ("t5-v1.1-large", 783_150_080)],
)
def test_t5_of_version_one_one(name: str, parameters: int) -> None:
    """As google/t5-v1_1-small, -base and -large count on the Hugging Face Hub."""
    model = load_model(name)
    assert model.parameters == parameters
    assert catalog.load("models", name).name == name.replace("t5-v1.1", "flan-t5")


@pytest.mark.parametrize("model", ["deberta-v2-xxlarge", "vit-base", "clip-vit-base-patch32", "bert-large"])
def test_a_loss_that_makes_logits_leaves_models_without_words_alone(model: str) -> None:
    """Levanter's own loss multiplies by the output layer, which bare encoders have not."""
    job = {"model": model, "gpu": "h100-sxm", "framework": "levanter"}
    assert memory(**job).peak > 0 and step(**job).seconds > 0


def test_a_step_of_jax_costs_its_host_little() -> None:
    """On a v6e one micro-batch of 4 sequences takes 19.7 ms with its optimizer, 16 of them 282 (vorushin/tpuchat
    08_tpu_ablations.py): 2.2 ms a step and optimizer beside 17.5 each."""
    assert dict(kin("maxtext").prior)["step_seconds"] <= 0.004 < float(Timing.model_fields["step_seconds"].default)


def test_xla_keeps_the_logits_of_the_product_alone() -> None:
    """XLA's own plans of MaxText's loss for a v6e: 2.58 GB of temporaries with a head of 32,000 words over 32,768
    tokens, 0.54 without; so Google's 70B with five sequences of 8,192 tokens fits."""
    kept = memory(Job(model="llama-2-7b", gpu="tpu-v6e", framework="maxtext", seq=4096, micro_batch=8, gpus=8, zero=3,
                      recompute="full", global_batch=64)).stages[0]  # fmt: skip
    norm = 2 * kept.saved.per_layer  # what it and the product read
    assert kept.saved.head_and_loss - norm == pytest.approx((2.575 - 0.544) * 1e9, rel=0.05)
    large = Job(model="llama-3.1-70b", gpu="tpu-v6e", framework="maxtext", gpus=256, seq=8192, micro_batch=5,
                global_batch=1280, zero=3, recompute="full", offload=("activations",))  # fmt: skip
    assert memory(large).fits


def test_weights_of_experts_arrive_beside_what_comes_before_them() -> None:
    """Layers are one scanned loop: experts hide nothing of their own weights, so that longer micro-batches of them do
    not help; elsewhere the next layer's are gathered meanwhile."""
    cells = {"model": "mixtral-8x7b", "n_gpus": "64", "gpu": "mi355x", "seq_len": "4096", "recompute": "full"}
    scanned = setup_of(row(**cells, micro_batch="8", global_batch="512"))
    traffic = scanned.framework.traffic.model_copy(update={"gathers_in_layer": False})
    ahead = replace(scanned, framework=scanned.framework.model_copy(update={"traffic": traffic}))
    inside, before = (breakdown_of(work_of(one), timing_on(kin_of(one.framework), "cdna4")) for one in (scanned, ahead))
    assert inside["data_parallel"] > 1.4 * before["data_parallel"] > 0
    assert inside["compute"] == before["compute"]
    numbers = stage_numbers(work_of(scanned))[0]
    for phase in ("forward", "backward"):
        assert 0 < numbers[f"{phase}.experts.grouped"] == numbers[f"{phase}.grouped"]
    dense = setup_of(row(**{**cells, "model": "llama-2-7b"}, micro_batch="8", global_batch="512"))
    assert not any(".experts." in name for name in stage_numbers(work_of(dense))[0])
