"""What is on the GPU while gradients are on their way: FSDP's of the output layer, and one of DeepSpeed to the host."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.footprint.buffers import head_gradient_bytes
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.memory import memory_of
from distsim.specs.job import Job

VOCABULARY, HIDDEN = 128256, 4096


def _setup(**options: object) -> Setup:
    job = Job(**{"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "seq": 2048, **options})  # type: ignore[arg-type]
    return resolve(job)


def _head(setup: Setup) -> tuple[float, float]:
    last, before = head_gradient_bytes(setup, build_stages(setup)[-1])
    return float(last), float(before)


def test_a_unit_of_its_own_is_reduced_beside_the_last_layer() -> None:
    """With the final norm, in the type that it is reduced in: fp32 in torchtitan, bf16 in torchtune."""
    elements = (VOCABULARY + 1) * HIDDEN
    assert _head(_setup(framework="torchtitan", zero=3)) == (4 * elements, 0)
    assert _head(_setup(framework="torchtune", zero=3)) == (2 * elements, 0)


def test_in_the_roots_unit_it_waits_for_the_embedding() -> None:
    last, before = _head(_setup(framework="fsdp", zero=3))
    assert last == before == 2 * (VOCABULARY + 1) * HIDDEN


@pytest.mark.parametrize(
    "options",
    [{"framework": "torchtitan", "zero": 0}, {"framework": "torchtune", "zero": 3, "gpus": 1},
     {"framework": "megatron-core", "zero": 1}, {"framework": "fsdp", "zero": 3, "lora_rank": 16}],
)  # fmt: skip
def test_nothing_waits_where_nothing_is_sharded_or_trains(options: dict[str, object]) -> None:
    assert _head(_setup(**options)) == (0, 0)


def _buffers(**options: object) -> float:
    setup = _setup(framework="deepspeed", **options)
    return float(memory_of(setup).worst.categories["buffers"])


def test_deepspeed_has_a_buffer_for_the_largest_gradient_on_its_way() -> None:
    """At stages 1 and 2, in the model's 16 bits; stage 3 sends parts of tensors."""
    for zero, each in ((1, 2), (2, 2), (3, 0)):
        more = _buffers(zero=zero, offload="optimizer") - _buffers(zero=zero)
        assert more == pytest.approx(each * VOCABULARY * HIDDEN)


@pytest.mark.parametrize("name", ["paged_adamw_8bit", "paged-adamw-32bit", "paged_lion_8bit"])
def test_paged_states_are_on_the_gpu_and_said_to_be(name: str) -> None:
    """bitsandbytes: unified memory, moved to the host only when GPU memory is exhausted."""
    job: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "a100-sxm4-80gb", "gpus": 1, "framework": "huggingface"}
    paged, plain = (distsim.memory(**job, optimizer=one) for one in (name, name[len("paged_") :]))
    assert paged.peak == plain.peak
    assert any(f"{name}: its states are counted on the GPU" in note for note in paged.setup.notes)
    assert not any("counted on the GPU" in note for note in plain.setup.notes)


@pytest.mark.parametrize(("framework", "zero", "once"), [("megatron-core", 1, True), ("deepspeed", 2, False)])
def test_gradients_that_leave_once_hide_behind_the_last_backward(framework: str, zero: int, once: bool) -> None:
    """However many micro-batches there are; those of every micro-batch hide behind each."""
    job: dict[str, Any] = {"model": "gpt2-xl", "gpu": "v100-sxm2-32gb", "seq": 512, "framework": framework,
                           "offload": "optimizer", "zero": zero}  # fmt: skip
    exposed = [distsim.step(**job, gpus=4, global_batch=batch).breakdown["offload"] for batch in (8, 64)]
    assert (exposed[0] == pytest.approx(exposed[1], rel=1e-3)) == once
    if once:  # and no stage of a pipeline waits for those of the others
        steps = [distsim.step(**job, gpus=32, pp=8, global_batch=4 * micro) for micro in (1, 2, 4)]
        assert steps[0].seconds < steps[1].seconds < steps[2].seconds
