"""Where in a step memory peaks, in models whose layers differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from distsim import catalog
from distsim.engine.figures import Figures
from distsim.engine.footprint.fragmentation import slack_of
from distsim.engine.footprint.moments import layer_backward, moments_of
from distsim.engine.footprint.saved import again_bytes, saved_of
from distsim.engine.footprint.stage_step import StageStep
from distsim.engine.footprint.states import states, stored
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.engine.memory import stage_parts
from distsim.interop.huggingface import read_config
from distsim.specs.job import Job

CONFIGS = json.loads((Path(__file__).parent / "oracles" / "torch_mixtures_configs.json").read_text())
RECORDED = 5_520_401_920
"""Bytes of llama4-dense at the peak of a step: 2,048 tokens, bf16, AdamW, full recomputation (transformers 5.23)."""
MIXED = ("llama-4-maverick", "deepseek-v2-lite", "jamba-v0.1", "gemma-3n-e2b", "nemotron-h-56b", "llama-3-8b")


def _setup(model: Any, **options: Any) -> Setup:
    usual: dict[str, Any] = {"gpu": "h200-sxm", "gpus": 1, "framework": "huggingface", "precision": "pure-bf16"}
    return resolve(Job(model=model, **{**usual, **options}))


def _again(setup: Setup, layers: Any) -> Setup:
    return replace(setup, layout=setup.layout.with_(recompute_layers=layers))


def _every_layer(setup: Setup, stage: Stage) -> float:
    """The highest point of any layer's backward pass, each looked at by itself."""
    setup = stored(setup)
    step = StageStep(setup, stage, states(setup, stage.held(), Figures()), saved_of(setup, stage))
    for place, kind in enumerate(stage.order):
        layer_backward(step, kind, place)
    return float(max(moment.total for moment in step.found))


@pytest.mark.parametrize("again", [0, 3, -1])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", MIXED)
def test_the_highest_layer_is_among_those_looked_at(name: str, batch: int, again: int) -> None:
    """No layer between rises above them, whether gradients take room of their own (one micro-batch) or not."""
    setup = _again(_setup(name, seq=1024, global_batch=batch, micro_batch=1), again)
    stage = build_stages(setup)[0]
    _, found = stage_parts(setup, stage, Figures())
    backward = max(moment.total for moment in found.compared if moment.name.startswith("backward of"))
    assert backward == pytest.approx(_every_layer(setup, stage), rel=1e-12)
    assert found.top.total >= backward


@pytest.mark.parametrize("name", MIXED)
def test_arrays_agree(name: str) -> None:
    """Numbers of recomputed layers as an array: each entry as by itself."""
    setup = _setup(name, seq=4096, micro_batch=8, global_batch=8)  # so much that a layer's backward is the peak
    layers = setup.model.layers
    wanted = [0, 1, 2, layers // 2, layers - 1, -1]

    def peak(count: Any) -> Any:
        one = _again(setup, count)
        parts, found = stage_parts(one, build_stages(one)[0], Figures())
        lost = found.top.lost(slack_of(one), found.idle) if found.top.name else 0  # of arrays it is in activations
        return parts["activations"] + parts["gradients"] + lost

    together = peak(numpy.array(wanted))
    assert together == pytest.approx([peak(count) for count in wanted], rel=1e-12)
    assert together[-1] < together[0]


def test_experts_behind_a_dense_layer() -> None:
    """Llama 4 with experts in every second layer, computed again: the peak is where the first experts run backward.

    Recorded as tests/test_saved_tensors.py says. PyTorch's fake tensors make SiLU's derivative of four tensors more
    than one kernel of a GPU does, each as large as what the experts activate; they are left out.
    """
    model = read_config(CONFIGS["llama4-dense"]).model
    setup = _setup(model, seq=2048, framework="huggingface", recompute="full", global_batch=1)
    stage = build_stages(setup)[0]
    held = states(setup, stage.parameters, Figures())
    top = max(moments_of(setup, stage, held, saved_of(setup, stage)), key=lambda moment: moment.total)
    assert top.name == "backward of layer 2 of 4"
    assert model.experts is not None
    activated = model.experts.count * 2048 * model.experts.ffn * 2
    assert top.total == pytest.approx(RECORDED - 4 * activated, rel=0.003)


IMAGES = 64 * 3 * 224 * 224 * 2
"""Bytes of the images, which the tracker did not count."""
VIT = [
    ("none", "nothing", 3072, 4_350_558_720),
    ("full", "nothing", 3072, 1_146_288_640),
    ("full", "output", 3072, 1_165_654_528),
    ("full", "nothing", 768, 713_486_848),
    ("full", "output", 768, 735_116_800),
]
"""Recomputation, what it holds (reentrant autograd or not), the MLP's width, and the peak in bytes: ViT-B, 64 images,
bf16, AdamW (transformers 5.24, torch 2.13, fake tensors). The narrow MLP has the peak in attention's backward."""
WITHOUT_SUMS = "flex"
"""An attention kernel that holds nothing beside its gradients, as far as fake tensors show."""


@pytest.mark.parametrize(("recompute", "holds", "width", "recorded"), VIT)
def test_every_tensor_of_the_stream_is_counted_once(recompute: str, holds: str, width: int, recorded: int) -> None:
    """The checkpoint keeps the tensor that the first norm keeps; the last product's output gradient is the stream's."""
    model = catalog.load("models", "vit-base-patch16-224").model_copy(update={"ffn": width})
    setup = _setup(model, seq=197, micro_batch=64, global_batch=64, recompute=recompute)
    own = {"recompute_holds": holds, "attention_kernel": WITHOUT_SUMS}
    setup = replace(setup, kernels=setup.kernels.model_copy(update=own))
    stage = build_stages(setup)[0]
    _, found = stage_parts(setup, stage, Figures())
    assert found.top.total == pytest.approx(recorded + IMAGES, rel=1e-5)


def test_copies_of_a_layers_input_count_beside_it() -> None:
    """A slice of scanned layers' inputs is a tensor of its own, and so is what a norm in fp32 keeps."""
    setup = _setup("vit-base-patch16-224", recompute="full")
    sliced = replace(setup, kernels=setup.kernels.model_copy(update={"recompute_holds": "slice"}))
    for model, one, beside in (("vit-base-patch16-224", setup, 0), ("vit-base-patch16-224", sliced, 1),
                               ("llama-3-8b", _setup("llama-3-8b", recompute="full"), 1)):  # fmt: skip
        block = build_stages(one)[0].layers[0][0]
        assert block.boundary is not None, model
        assert again_bytes(one, block) == (beside * block.boundary.size_bytes, 0)


@pytest.mark.parametrize(
    ("model", "options", "own"),
    [
        ("llama-3-8b", {}, 0),
        ("llama-3-8b", {"tp": 2, "gpus": 2, "sequence_parallel": False}, 0),
        ("llama-3-8b", {"tp": 2, "gpus": 2, "sequence_parallel": True}, 1),
        ("llama-3-8b", {"precision": "amp-bf16", "framework": "huggingface"}, 1),
        ("gemma-2-2b", {}, 1),
        ("gpt2", {}, 1),
        ("gpt2", {"dropout": False}, 0),
    ],
)
def test_gradients_that_an_addition_hands_on_are_no_new_tensors(model: str, options: Any, own: int) -> None:
    """But for those that are gathered, cast, or changed by dropout or a norm on their way."""
    setup = _setup(model, **{"framework": "megatron-core", **options})
    for row in build_stages(setup)[0].layers[0][0].operations:
        if row.name in ("attention.projection", "mlp.down"):
            output, *_ = row.transient_backward
            assert output.elements == own * setup.layout.tokens * setup.model.hidden, row.name


def _moments(setup: Setup) -> dict[str, float]:
    stage = build_stages(setup)[0]
    held = states(setup, stage.held(), Figures())
    return {moment.name: float(moment.total) for moment in moments_of(setup, stage, held, saved_of(setup, stage))}


@pytest.mark.parametrize(
    ("model", "tokens", "precision", "recompute", "recorded"),
    [
        ("gpt2-xl", (1024, 8), "pure-bf16", "full", 1_457_918_464),
        ("gpt2-xl", (1024, 8), "amp-bf16", "full", 2_693_586_432),
        ("phi-2", (2048, 4), "pure-bf16", "full", 2_738_783_744),
        ("phi-2", (2048, 4), "amp-bf16", "full", 5_329_550_848),
        ("phi-2", (2048, 4), "amp-bf16", "none", 7_144_573_440),
    ],
)
def test_a_composed_activation_has_gradients_of_both_factors(
    model: str, tokens: tuple[int, int], precision: str, recompute: str, recorded: int
) -> None:
    """Two layers with 2,048 words on torch 2.13's fake tensors; the peak is in gelu_new's last product. In fp32 where
    autocast took its power there."""
    spec = catalog.load("models", model).model_copy(update={"layers": 2, "vocab": 2048})
    setup = _setup(
        spec, seq=tokens[0], micro_batch=tokens[1], global_batch=tokens[1], precision=precision, recompute=recompute,
        dropout=False,
    )  # fmt: skip
    assert max(_moments(setup).values()) == pytest.approx(recorded, rel=0.008)


@pytest.mark.parametrize(
    ("model", "seq", "recorded"),
    [("llama-3.2-1b", 2048, 25.20e9), ("qwen3-4b", 2048, 76.35e9), ("llama-2-7b", 4096, 124.73e9)],
)
def test_autocast_caches_weights_of_recomputed_layers(model: str, seq: int, recorded: float) -> None:
    """The second of two forward passes on torch 2.13's fake tensors, which alone is higher than any backward: autocast
    holds its 16-bit copies of all layers until it ends. Nobody holds those of another forward pass, nor of weights that
    a compiler casts or ZeRO 3 gathers."""
    options: dict[str, Any] = {
        "seq": seq, "micro_batch": 1, "global_batch": 2, "precision": "amp-bf16", "recompute": "full",
    }  # fmt: skip
    found = _moments(_setup(model, **options))
    assert max(found, key=lambda name: found[name]) == "loss"
    assert found["loss"] == pytest.approx(recorded, rel=1e-3)
    for other in ({"compile": True}, {"zero": 3, "gpus": 8, "global_batch": 16}):
        setup = _setup(model, **{**options, **other})
        stage = build_stages(setup)[0]
        assert (
            StageStep(setup, stage, states(setup, stage.held(), Figures()), saved_of(setup, stage)).cached_copies == 0
        )
