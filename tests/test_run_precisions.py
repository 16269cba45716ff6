"""Whether products of measured runs in fp32 ran on TF32 units: what cells, notes, years and frameworks say."""

from __future__ import annotations

import pytest

from distsim import catalog
from distsim.engine.evidence import replay
from distsim.engine.runs.precision import precision_of
from distsim.engine.runs.profile import framework_of
from distsim.interop.runs import Run


def _recipe(precision: str, notes: str = "", year: str = "2025", framework: str = "huggingface", **more: str) -> str:
    run = Run({"id": "a", "framework": framework, "precision": precision, "notes": notes, "year": year, **more}, 2)
    return precision_of(run, framework_of(run))


@pytest.mark.parametrize(
    ("cell", "recipe"),
    [("fp32", "fp32"), ("32-true", "fp32"), ("32", "fp32"), ("fp32 (TF32)", "tf32"), ("tf32", "tf32"),
     ("fp32, no TF32", "fp32"), ("fp32 without TF32", "fp32"), ("TF32 off", "fp32"), ("fp32-no-tf32", "fp32")],
)  # fmt: skip
def test_cells(cell: str, recipe: str) -> None:
    assert _recipe(cell) == recipe


@pytest.mark.parametrize("words", ["allow_tf32=True", "TF32 on", "set_float32_matmul_precision('high')"])
def test_notes_that_tell_of_tf32(words: str) -> None:
    assert _recipe("fp32", words) == "tf32"
    assert _recipe("bf16", words) == _recipe("bf16")


@pytest.mark.parametrize("words", ["allow_tf32=False", "TF32 off", "no TF32", "TF32 was disabled"])
@pytest.mark.parametrize("framework", ["huggingface", "maxtext"])
def test_notes_that_deny_it_say_more_than_the_year_and_the_framework(words: str, framework: str) -> None:
    assert _recipe("fp32", year="2021", framework=framework) == "tf32"
    assert _recipe("fp32", words, "2021", framework) == "fp32"


def test_a_rate_in_tf32_says_nothing_of_the_run() -> None:
    assert _recipe("fp32", "MFU over the TF32 peak") == "fp32"


@pytest.mark.parametrize("cell", ["16-true", "pure-fp16", "fp16-pure"])
def test_half_precision_all_through(cell: str) -> None:
    """Lightning's 16-true is model.half(): no copy in fp32, no loss scaling; 16-mixed has both."""
    assert _recipe(cell) == "pure-fp16" != _recipe("fp16") == _recipe("16-mixed")
    recipe = catalog.load("precisions", "pure-fp16")
    assert (recipe.master_bytes, recipe.state_bytes, recipe.math) == (0, 2, "fp16")


@pytest.mark.parametrize("cell", ["fp16-amp", "amp-fp16", "AMP FP16", "16-mixed"])
def test_autocast_to_half_keeps_fp32_weights_in_torch(cell: str) -> None:
    """Megatron's mixed precision has weights of 16 bits beside a master copy."""
    for framework in ("torch-ddp", "fsdp", "torch-compile"):
        assert catalog.load("precisions", _recipe(cell, framework=framework)).parameter_bytes == 4
    assert _recipe("fp16", framework="torch-ddp") == "fp16"
    assert catalog.load("precisions", _recipe("fp16-amp", framework="megatron-lm")).parameter_bytes == 2


@pytest.mark.parametrize(
    ("framework", "cell", "recipe"),
    [
        ("torchtitan", "float8", "torchao-tensorwise"), ("torchtitan", "torchao float8", "torchao-tensorwise"),
        ("torchtitan", "float8-tensorwise-all-gather", "torchao-tensorwise"),
        ("torchtitan", "bf16 + float8", "torchao-tensorwise"), ("torchtitan", "fp8 (rowwise)", "torchao-rowwise"),
        ("maxtext", "aqt_int8", "jax-int8"), ("maxtext", "AQT int8", "jax-int8"), ("maxtext", "int8w", "jax-bf16"),
        ("fsdp", "nvfp4+mxfp8", "nvfp4"), ("fsdp", "fp8/nvfp4", "nvfp4"), ("torch-ddp", "bf16_full", "pure-bf16"),
        ("torch-ddp", "bf16 (full)", "pure-bf16"), ("torch-ddp", "apex O1", "amp-fp16"), ("torch-ddp", "O2", "fp16"),
        ("megatron-core", "bf16 params, fp32 grads", "bf16-fp32-grads"),
    ],
)  # fmt: skip
def test_formats_by_other_words(framework: str, cell: str, recipe: str) -> None:
    """The first word that was known had decided, or none was."""
    assert _recipe(cell, framework=framework) == recipe


@pytest.mark.parametrize(
    ("framework", "cell", "notes", "recipe"),
    [
        ("megatron-core", "fp8", "bf16 gradients", "fp8-bf16-grads"), ("megatron-core", "fp8", "fp32 gradients", "fp8"),
        ("megatron-core", "fp8", "", "fp8"), ("megatron-core", "mxfp8", "bf16 main grads", "mxfp8-bf16-grads"),
        ("megatron-core", "nvfp4", "gradients reduced in bf16", "nvfp4-bf16-grads"),
        ("megatron-bridge", "nvfp4", "bf16 gradients", "nvfp4-bf16-grads"),
        ("megatron-bridge", "fp8", "bf16 gradients", "fp8-parameters"),
        ("megatron-bridge", "fp8-mx", "fp32 gradients", "mxfp8-parameters-fp32-grads"),
        ("megatron-bridge", "fp8-mx", "bf16 gradients", "mxfp8-parameters"),
    ],
)  # fmt: skip
def test_gradients_beside_narrow_products(framework: str, cell: str, notes: str, recipe: str) -> None:
    """Only fp32 ones had been read beside 8 and 4 bits, so that those of Megatron-LM were in fp32 whatever notes
    said."""
    assert _recipe(cell, framework=framework, notes=notes) == recipe


@pytest.mark.parametrize(("framework", "recipe"), [("maxtext", "jax-bf16"), ("huggingface", "amp-fp16")])
def test_a_blank_cell_on_a_chip_without_bf16(framework: str, recipe: str) -> None:
    """MaxText's configurations say bfloat16 whatever the chip is: two runs on a T4 were told five and seven times too
    fast."""
    assert _recipe("", framework=framework, gpu="t4") == recipe


@pytest.mark.parametrize(
    ("notes", "more", "recipe"),
    [("bf16 weights + 8-bit Adam", {}, "pure-bf16"), ("pure bfloat16 model weights", {}, "pure-bf16"),
     ("no bf16 weights", {}, "amp-bf16"), ("bf16 weights exchanged", {}, "amp-bf16"), ("", {}, "amp-bf16"),
     ("bf16 weights", {"framework": "maxtext"}, "pure-bf16"),
     ("bf16 weights", {"framework": "fsdp", "zero_stage": "3"}, "fsdp-bf16"),
     ("bf16 weights", {"framework": "deepspeed"}, "bf16")],
)  # fmt: skip
def test_weights_that_notes_say_are_in_16_bits_are(notes: str, more: dict[str, str], recipe: str) -> None:
    """FSDP's shards stay fp32 whatever is gathered, and DeepSpeed's have a master copy."""
    assert _recipe("bf16", **{"framework": "torch-ddp", "notes": notes, **more}) == recipe


@pytest.mark.parametrize(
    ("notes", "framework", "recipe"),
    [("torchao float8 tensorwise on the frozen linear layers", "huggingface", "torchao-tensorwise"),
     ("float8 of torchao, rowwise", "fsdp", "torchao-rowwise"), ("no torchao float8", "fsdp", "fsdp-fp8"),
     ("torchao 0.11", "fsdp", "fsdp-fp8"), ("torchao float8", "megatron-core", "fp8")],
)  # fmt: skip
def test_notes_name_whose_8_bit_layers_ran(notes: str, framework: str, recipe: str) -> None:
    assert _recipe("fp8", notes, framework=framework) == recipe


@pytest.mark.parametrize(
    ("step_seconds", "notes", "gpu", "reason"),
    [("0.08", "", "h100-sxm", ""), ("0.08", "no TF32", "h100-sxm", "precision fp32"), ("0.008", "", "h100-sxm", "fp32"),
     ("0.8", "", "v100-sxm2-32gb", "precision fp32"), ("0.8", "", "h100-sxm", None)],
)  # fmt: skip
def test_fp32_beyond_its_peak_ran_on_tf32_units(step_seconds: str, notes: str, gpu: str, reason: str | None) -> None:
    """NVIDIA's containers switch TF32 on: what fp32 units cannot do was done there, unless a row says otherwise."""
    cells = {"id": "a", "framework": "torch-ddp", "model": "llama-3.2-1b", "precision": "fp32", "year": "2025",
             "seq_len": "2048", "gpu": gpu, "n_gpus": "1", "micro_batch": "1", "global_batch": "1"}  # fmt: skip
    found = replay(Run({**cells, "step_time_s": step_seconds, "notes": notes}, 2))
    assert (reason or "") in found.reason and bool(found.reason) == bool(reason)
    assert found.setup is not None and (found.setup.precision.math == "tf32") == (reason == "")
    assert ("timed as tf32" in found.assumed) == (reason == "")


def test_whole_numbers_are_timed_as_fp8_and_said_to_be() -> None:
    cells = {"id": "a", "model": "llama-3-8b", "seq_len": "4096", "gpu": "h100-sxm", "n_gpus": "8", "micro_batch": "1",
             "global_batch": "64", "framework": "torchtitan", "zero_stage": "3", "step_time_s": "5"}  # fmt: skip
    whole, fp8, jax = (replay(Run({**cells, **more}, 2)) for more in (
        {"precision": "int8"}, {"precision": "fp8"}, {"precision": "int8", "framework": "maxtext"}))  # fmt: skip
    assert whole.predicted_seconds == fp8.predicted_seconds and not fp8.assumed and not jax.assumed
    assert whole.assumed == "precision 'int8' has no recipe of its own: timed as fp8"
    base = {"finetune_kind": "lora", "lora_rank": "16"}  # frozen weights have it, products do not
    one, other = (replay(Run({**cells, **base, "precision": name}, 2)) for name in ("int8", "nf4"))
    assert "timed as" not in one.assumed + other.assumed and one.predicted_seconds != fp8.predicted_seconds
