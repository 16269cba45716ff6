"""Vision towers before decoders: what they hold, send, compute and cost, against torch, by laws and at a terminal."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from recordings import added_apart
from test_search import same_somewhere

import distsim
from distsim.engine.figures import Figures
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.flops import model_flops, trained_parameters
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.jobs.tower_flops import tower_flops
from distsim.engine.steps.kernel_figures import kernels
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.interop.runs.image_notes import image_options
from distsim.layers.ledger import distinct_saved
from distsim.layers.network import has_backward, tower_layers
from distsim.specs.job import Job
from distsim.specs.vision import ALONE

ORACLES = Path(__file__).parent / "oracles"
JOB = {"model": "qwen2.5-vl-7b", "gpu": "h100-sxm", "gpus": 8, "framework": "huggingface", "zero": 3, "seq": 4096,
       "images": 2.0, "image_size": "896"}  # fmt: skip
TRAINS = {"all": "trained", "projector+language": "projector", "language": "frozen", "projector": ALONE}
FARTHEST = 0.0035
"""Of peaks as torch counted them, in the median 0.0006."""


def setup(**options: Any) -> Setup:
    return resolve(Job.read({**JOB, **options}))


def table(name: str) -> list[dict[str, str]]:
    with (ORACLES / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def counted(run: dict[str, str]) -> dict[str, Any]:
    """A recorded case as a job."""
    job = {"model": run["model"], "gpu": "h100-sxm", "gpus": 1, "framework": "huggingface", "seq": int(run["seq"]),
           "images": float(run["images"]), "precision": run["precision"]}  # fmt: skip
    return job | ({"image_size": run["pixels"]} if run["pixels"] else {})


@pytest.mark.parametrize("run", table("vision_saved.csv"), ids=lambda run: f"{run['model']}-{run['precision']}")
def test_a_layer_keeps_what_torch_keeps(run: dict[str, str]) -> None:
    job = resolve(Job.read(counted(run)))
    found = {
        kind: sum(distinct_saved(one.operations).values()) for kind, (one, _) in tower_layers(job.context()).items()
    }
    assert job.model.shown_tower is not None and job.model.shown_tower.seen == int(run["patches"])
    assert found["vision"] == pytest.approx(int(run["layer_bytes"]), rel=float(run["within"] or 1e-5))


@pytest.mark.parametrize(
    "run", table("vision_peaks.csv"),
    ids=lambda run: "-".join(run[name] for name in ("model", "precision", "trains", "recompute", "optimizer")),
)  # fmt: skip
def test_a_step_peaks_where_torch_does(run: dict[str, str]) -> None:
    own = {"vision": TRAINS[run["trains"]], "recompute": run["recompute"], "optimizer": run["optimizer"]}
    [stage] = distsim.memory(**counted(run), **own).to_dict()["stages"]
    job = resolve(Job.read({**counted(run), **own}))
    mine = build_stages(job)[0]
    more = added_apart(job, mine, states(job, mine.parameters, Figures()), saved_of(job, mine))
    largest = max(moment["bytes"] + more.get(moment["moment"], 0) for moment in stage["moments"])
    assert largest == pytest.approx(int(run["peak_bytes"]), rel=float(run["within"] or FARTHEST))


def test_what_is_frozen_has_no_gradients_and_no_states() -> None:
    """Parameters are the same whatever trains; trained ones shrink by exactly what is frozen."""
    trained, projector, frozen, alone = (
        distsim.memory(**{**JOB, "gpus": 1, "zero": 0, "gpu": "h200-sxm"}, vision=one).to_dict()["stages"][0][
            "categories"
        ]
        for one in ("trained", "projector", "frozen", ALONE)
    )
    assert trained["parameters"] == projector["parameters"] == frozen["parameters"] == alone["parameters"]
    tower, merger = 631_975_680, 44_574_464  # recorded with transformers 5.24
    for kind, each in (("gradients", 2), ("optimizer", 12)):
        assert trained[kind] - projector[kind] == pytest.approx(each * tower, rel=1e-4)  # counters of steps beside it
        assert projector[kind] - frozen[kind] == pytest.approx(each * merger, rel=1e-4)
        assert alone[kind] == pytest.approx(each * merger, rel=1e-4)


def test_shards_sum_to_the_whole() -> None:
    """Tensor parallel ranks share the tower's layers; norms, patches and projectors are on each."""
    whole, half = (build_stages(setup(tp=tp, zero=0, framework="megatron-core"))[0] for tp in (1, 2))
    for one, two in zip(whole.layers, half.layers, strict=True):
        of_one, of_two = (
            sum(p.elements * (tp if p.tensor_parallel else 1) for row in block.operations for p in row.parameters)
            for block, tp in ((one[0], 1), (two[0], 2))
        )
        assert of_one == of_two and one[1] == two[1]


def test_flops_are_six_per_parameter_and_patch() -> None:
    """``6 N + 12 L H S`` of the layers, of windows where they are, and of what is before and behind them."""
    job = setup()
    tower = job.model.shown_tower
    assert tower is not None
    patches, tokens = tower.images * tower.seen, tower.image_tokens
    layer = 4 * 1280**2 + 3 * 1280 * 3420
    products = 32 * layer + 3 * 2 * 14**2 * 1280
    merger = (5120**2 + 5120 * 3584) * tokens
    attention = 12 * 1280 * (4 * tower.seen + 28 * 64)
    whole = (6 * products + attention) * patches + 6 * merger
    assert tower_flops(job) * job.layout.seq == pytest.approx(whole, rel=1e-9)
    assert tower_flops(setup(vision="frozen")) == pytest.approx(tower_flops(job) / 3, rel=1e-9)
    assert model_flops(job) - model_flops(setup(images=None, image_size=None)) == pytest.approx(tower_flops(job))


def test_time_grows_with_images_and_falls_with_what_is_frozen() -> None:
    seconds = [distsim.step(**{**JOB, **more}).seconds for more in (
        {"images": None, "image_size": None}, {"images": 1.0}, {"images": 2.0}, {"images": 4.0})]  # fmt: skip
    assert seconds == sorted(seconds) and seconds[0] < seconds[-1]
    less = [distsim.step(**JOB, vision=one).seconds for one in ("trained", "projector", "frozen", ALONE)]
    assert less == sorted(less, reverse=True)
    again = [distsim.step(**JOB, vision=one, recompute="full").seconds for one in ("trained", "frozen")]
    assert again[0] > again[1] > distsim.step(**JOB, vision="frozen").seconds


def test_images_weigh_like_as_many_short_sequences() -> None:
    """Two images in each of two sequences are four in one, for all but the decoder."""
    one, two = setup(micro_batch=1, images=4.0), setup(micro_batch=2, images=2.0)
    for kind, (block, times) in tower_layers(one.context()).items():
        other, count = tower_layers(two.context())[kind]
        assert times == count and distinct_saved(block.operations) == distinct_saved(other.operations)


def test_frozen_layers_are_gathered_once_and_reduced_never() -> None:
    plain = {**JOB, "framework": "fsdp"}
    trained, frozen = (distsim.comm(**plain, vision=one).to_dict()["collectives"] for one in ("trained", "frozen"))

    def calls(flows: list[dict[str, Any]], phase: str) -> int:
        return sum(round(one["calls"]) for one in flows if one["purpose"] == "parameters" and one["phase"] == phase)

    assert calls(trained, "forward") == calls(frozen, "forward") == 1 + 32 + 28
    assert calls(trained, "backward") == 32 + 28 and calls(frozen, "backward") == 28
    assert not has_backward(build_stages(setup(framework="fsdp", vision="frozen"))[0].layers[0][0])


def test_the_first_stage_has_fewer_layers_where_work_is_balanced() -> None:
    job = {**JOB, "framework": "megatron-core", "zero": 0, "pp": 4, "images": 8.0, "image_size": "1344", "seq": 20480}
    shown = resolve(Job.read({**job, "stage_layers": "balanced"})).stage_layers
    alone = resolve(Job.read({**job, "images": None, "image_size": None, "stage_layers": "balanced"})).stage_layers
    assert sum(shown) == sum(alone) == 28 and shown[0] < alone[0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"model": "llama-7b"}, "no vision tower"),
        ({"images": None}, "no effect without images"),
        ({"image_size": "44x"}, "no size in pixels"),
        ({"image_size": "0"}, "no size in pixels"),
        ({"images": 30.0, "seq": 2048}, "do not fit"),
        ({"model": "gemma-3-4b", "image_size": "448"}, "scales every image"),
        ({"vision": ALONE, "lora_rank": 8}, "trains no adapters"),
        ({"model": "internvl3-38b", "image_size": None, "tp": 8, "zero": 0, "framework": "megatron-core"}, "25 heads"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DistsimError, match=problem):
        setup(**options)


def test_a_job_tells_its_images() -> None:
    answer = distsim.memory(**JOB)
    told = answer.to_dict()["job"]
    assert (told["images"], told["image_patches"], told["image_tokens"], told["vision"]) == (2.0, 4096, 1024, "trained")
    assert Job.read(told) == Job.read(JOB)
    assert any("each image is 4,096 patches" in note for note in answer.notes)
    assumed = distsim.memory(**{**JOB, "image_size": None}).notes  # a size that nobody stated is told
    assert any("each image of 448 x 448 pixels (--image-size) is 1,024 patches" in note for note in assumed)
    assert "images" not in distsim.memory(**{**JOB, "images": None, "image_size": None}).to_dict()["job"]


@pytest.mark.parametrize(
    ("notes", "options"),
    [
        (
            "2 images of 448x672 per sample; vision tower frozen",
            {"images": 2.0, "image_size": "448x672", "vision": "frozen"},
        ),
        ("1 MedPix image each sample at 448x448 (196 image tokens)", {"images": 1.0, "image_size": "448x448"}),
        ("one image a sequence, 256 image tokens each", {"images": 1.0, "image_size": "448"}),
        ("1 image each sample; --freeze_vit true; the projector trains", {"images": 1.0, "vision": "projector"}),
        ("1 image per sample, only the mlp2x projector trains (LLM frozen)", {"images": 1.0, "vision": ALONE}),
        ("images of 448x448, vision tower frozen", {}),
        ("1 image per sample; vision tower not frozen", {"images": 1.0}),
        (
            "1 image per sample; the vision tower is trained, the language model is not frozen",
            {"images": 1.0, "vision": "trained"},
        ),
        ("batch of 4 sequences", {}),
    ],
)
def test_notes_tell_of_images(notes: str, options: dict[str, Any]) -> None:
    model = distsim.load_model("qwen2.5-vl-7b").spec
    assert image_options(Run({"notes": notes}, 1), model, adapters=False) == options
    assert image_options(Run({"notes": notes}, 1), distsim.load_model("llama-7b").spec, adapters=False) == {}


@pytest.mark.parametrize(("framework", "vision"), [("megatron-core", "trained"), ("huggingface", "frozen")])
def test_layouts_in_arrays_have_the_numbers_of_each(framework: str, vision: str) -> None:
    """Frozen towers, which recomputation reaches under transformers, included."""
    job = {"model": "qwen2.5-vl-7b", "gpu": "h100-sxm", "global_batch": 8, "framework": framework, "seq": 4096}
    same_somewhere(Job.read({**job, "images": 2.0, "vision": vision}), 8, seed=11, most=6)


@pytest.mark.parametrize(
    ("targets", "decoder", "tower"), [("q,v", 8_388_608, 1_572_864), ("all-linear", 39_976_960, 7_077_888)]
)
def test_adapters_are_where_peft_puts_them(targets: str, decoder: int, tower: int) -> None:
    """Counted with peft 0.21 in LLaVA 1.5 7B, whose tower's products have the decoder's names."""
    job = {"model": "llava-1.5-7b", "images": 1.0, "gpus": 1, "framework": "huggingface", "seq": 1024, "lora_rank": 16,
           "lora_targets": targets, "precision": "pure-bf16"}  # fmt: skip
    alone, both = (distsim.memory(**job, vision=one).to_dict()["stages"][0] for one in ("frozen", "adapters"))
    assert alone["categories"]["gradients"] == pytest.approx(4 * decoder, rel=1e-3)
    assert both["categories"]["gradients"] == pytest.approx(4 * (decoder + tower), rel=1e-3)
    assert trained_parameters(resolve(Job.read({**job, "vision": "adapters"}))) == decoder + tower
    assert both["saved"]["total"] > alone["saved"]["total"]
    assert distsim.step(**job, vision="adapters").seconds > distsim.step(**job, vision="frozen").seconds
    with pytest.raises(DistsimError, match="no effect without adapters"):
        distsim.memory(**{**job, "lora_rank": None, "lora_targets": None}, vision="adapters")


def test_a_frozen_tower_is_quantised_with_the_decoder() -> None:
    """bitsandbytes takes every linear layer but the output layer; patches are a convolution."""
    job = {"model": "llava-1.5-7b", "images": 1.0, "gpus": 1, "framework": "huggingface", "seq": 1024, "lora_rank": 16,
           "lora_targets": "q,v"}  # fmt: skip
    plain, packed = (
        {p.name: p.held for row in build_stages(resolve(Job.read({**job, "quantize": how})))[0].layers[0][0].operations
         for p in row.parameters} for how in ("none", "nf4")
    )  # fmt: skip
    assert set(plain.values()) == {"frozen"}
    assert packed["attention.qkv.weight"] == packed["mlp.down.weight"] == "quantised"
    assert packed["attention.norm.weight"] == "frozen"


def test_a_tower_is_timed_as_the_same_layers_by_themselves() -> None:
    """Whatever norms, activation and widths the decoder behind it has (Llama's, in plain torch)."""
    report = distsim.step(model="llava-1.5-7b", images=2.0, gpus=1, gpu="h100-sxm", framework="huggingface", seq=2048)
    (_, decoder), (name, tower) = kernels(report)
    shown = report.setup.model.shown_tower
    assert shown is not None
    alone = distsim.step(model=shown.encoder, gpus=1, gpu="h100-sxm", framework="huggingface", seq=577, micro_batch=2)
    [(_, layer)] = kernels(alone)
    assert name == "vision" and [one.name for one in tower] == [one.name for one in layer]
    for one, other in zip(tower, layer, strict=True):
        assert one.shape == other.shape
        assert (one.forward, one.backward) == pytest.approx((other.forward, other.backward)), one.name
    assert {one.name for one in decoder} == {one.name for one in tower}


def test_a_middle_layer_is_the_decoders() -> None:
    """Whatever the tower's number of layers (27 before SmolVLM2's 24), and where a stage has none but the tower's."""
    job = {"model": "smolvlm2-2.2b", "gpus": 1, "framework": "huggingface", "seq": 2048, "precision": "pure-bf16"}
    with_tower, alone = (distsim.memory(**job, **more).to_dict()["stages"][0] for more in ({"images": 1.0}, {}))
    assert with_tower["saved"]["per_layer"] == alone["saved"]["per_layer"]
    large = {"model": "qwen2.5-vl-3b", "gpus": 8, "pp": 8, "seq": 32768, "images": 8.0, "image_size": "1792"}
    relieved = distsim.memory(**large, stage_layers="balanced")
    assert (
        resolve(relieved.setup.job).stage_layers[0] == 0 and relieved.to_dict()["stages"][0]["saved"]["per_layer"] > 0
    )
