"""Losses that a trainer puts in the place of its framework's: what they keep, what they multiply, what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import distsim
from distsim.engine.advice.mend import mend
from distsim.engine.jobs.flops import model_flops
from distsim.engine.jobs.profile import losses_for
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.kernels.compute import Chip, operation_sums
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.runs.setup import setup_of
from distsim.engine.validate import replay
from distsim.errors import DistsimError
from distsim.formulas.loss import loss_chunk_tokens
from distsim.interop.runs import Run
from distsim.interop.runs.loss_notes import loss_chunks
from distsim.layers.head import head
from distsim.layers.ledger import Operation
from distsim.specs.job import Job
from distsim.units import GIB

LOSSES = (
    "chunked",
    "chunked-head",
    "chunked-head-8",
    "chunked-logprobs",
    "chunked-nll",
    "fused-linear",
    "liger",
    "cut",
    "triton",
)
JOB: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 1, "framework": "huggingface", "seq": 4096,
                       "micro_batch": 2, "precision": "pure-bf16"}  # fmt: skip
TOKENS, WORDS, WIDTH = 8192, 128256, 4096


def _setup(**options: Any) -> Setup:
    return resolve(Job.read({**JOB, **options}))


def _ends(setup: Setup) -> list[Operation]:
    return [one for one in head(setup.context()) if one.name in ("head", "loss")]


def _peak(**options: Any) -> float:
    return float(distsim.memory(**{**JOB, **options}).worst.peak)


def test_chunks_are_those_of_liger() -> None:
    """The example in its code: 4 x 4,096 tokens, 32,000 words, 4,096 wide; and never more than there are tokens."""
    assert loss_chunk_tokens(16384, 32000, 4096) == 2048
    assert loss_chunk_tokens(8192, 256000, 2304) == 128
    assert loss_chunk_tokens(3, 100, 4096) == 3


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("tuned", [{}, {"lora_rank": 8}, {"lora_rank": 8, "lora_whole": "head"}])
def test_every_loss_multiplies_the_same_and_keeps_less(loss: str, tuned: dict[str, Any]) -> None:
    plain, other = _setup(**tuned), _setup(**tuned, loss=loss)
    assert model_flops(other) == model_flops(plain)
    ways = [[(one.flops_forward, one.flops_backward) for one in _ends(setup)] for setup in (plain, other)]
    assert ways[0] == ways[1]
    shape = _ends(other)[0].shape
    assert shape[0] * shape[3] == TOKENS
    more = {"micro_batch": 8}  # of several chunks of 8,192 tokens
    assert _peak(**tuned, **more, loss=loss) < _peak(**tuned, **more)


def test_what_is_left_of_the_logits() -> None:
    """Nothing of them for the cut loss, a chunk for Liger's, which has the weight's gradient in forward; both keep
    what is as large as the layer's input, whether its weight trains or not."""
    wide = TOKENS * WIDTH * 2
    for frozen in ({}, {"lora_rank": 8}):
        product, loss = _ends(_setup(loss="cut", **frozen))
        assert sum(tensor.size_bytes for tensor in (*product.saved, *loss.saved)) == wide + 4 * TOKENS
        assert all(tensor.elements <= TOKENS * WIDTH for tensor in product.transient_backward)
        product, loss = _ends(_setup(loss="fused-linear", **frozen))
        assert sum(tensor.size_bytes for tensor in (*product.saved, *loss.saved)) == wide
        transit = {tensor.name: tensor.size_bytes for tensor in loss.transient_forward}
        assert transit["loss.logits"] == 256 * WORDS * 2
        assert transit.get("loss.weight_gradient", 0) == (0 if frozen else WIDTH * WORDS * 2)


def test_peaks_by_hand() -> None:
    """Adapters on a model that computes its layers again: the eager loss has fp32 logits, their log-softmax and those
    in 16 bits alive at once, the cut one none of them."""
    options = {"lora_rank": 8, "recompute": "full"}
    logits = TOKENS * WORDS
    share = 1 + _setup().framework.overhead.fragmentation_fraction
    more = _peak(**options) - _peak(**options, loss="cut")
    assert more == pytest.approx(10 * logits * share, rel=0.15)


def test_time_of_the_cut_loss_on_an_a100() -> None:
    """apple/ml-cross-entropy README, benchmark: 8,192 tokens of Gemma 2 2B, 46.4 and 89.3 ms."""
    setup = _setup(model="gemma-2-2b", gpu="a100-sxm4-80gb", seq=8192, micro_batch=1, loss="cut")
    sums = [operation_sums(setup, Chip(setup), one) for one in _ends(setup)]
    forward, backward = (sum(float(pair[way].matmul + pair[way].memory) for pair in sums) for way in (0, 1))
    assert forward == pytest.approx(0.0464, rel=0.04)
    assert backward == pytest.approx(0.0893, rel=0.04)


def test_chunks_read_the_weight_again() -> None:
    """A wide vocabulary over a narrow model makes small chunks, whose products wait for the weight."""
    narrow = {"model": "gemma-2-2b", "gpu": "a100-sxm4-80gb", "seq": 8192, "micro_batch": 1}
    seconds = {}
    for loss in (None, "fused-linear"):
        setup = _setup(**narrow, loss=loss)
        product = operation_sums(setup, Chip(setup), _ends(setup)[0])
        seconds[loss] = float(product[0].matmul + product[1].matmul)
    assert seconds["fused-linear"] > 1.3 * seconds[None]


def test_liger_fuses_more_than_the_loss() -> None:
    """Norms, rotation and gated products: layers keep less than plain torch's, and pass over memory less often."""
    alone, whole = (distsim.step(**JOB, loss=loss) for loss in ("fused-linear", "liger"))
    kept = [report.memory.worst.saved.per_layer for report in (alone, whole)]
    assert kept[1] < 0.75 * kept[0]
    assert whole.seconds < alone.seconds


def test_a_job_that_does_not_fit_is_told_of_its_trainers_losses() -> None:
    """Trainers with a switch for one, and those that wrap models which a patch gives one; Megatron has neither."""
    large: dict[str, Any] = {
        "model": "gemma-2-2b", "micro_batch": 8, "seq": 8192, "recompute": "full", "attention": "flash"
    }  # fmt: skip

    def offered(framework: str) -> list[str]:
        return [one.flags for one in mend(distsim.memory(**{**JOB, **large, "framework": framework})).fitting]

    for framework in ("huggingface", "deepspeed", "fsdp", "torch-ddp"):
        assert any("--loss liger" in flags for flags in offered(framework)), framework
    assert not any("--loss" in flags for flags in offered("megatron-core"))


@pytest.mark.parametrize("model", ["vit-base-patch16-224", "clip-vit-base-patch32"])
def test_models_without_words_refuse_a_loss_over_them(model: str) -> None:
    with pytest.raises(DistsimError, match="no logits over a vocabulary"):
        resolve(Job(model=model, gpus=1, loss="cut"))


@pytest.mark.parametrize("model", ["gpt2-xl", "falcon-7b", "esm2-3b", "flan-t5-xl", "granite-3.0-8b"])
def test_liger_leaves_models_alone_that_it_does_not_patch(model: str) -> None:
    setup = resolve(Job(model=model, gpu="h100-sxm", gpus=1, framework="huggingface"))
    decoder = setup.model.causal and not setup.model.encoder_layers
    assert losses_for(setup.framework, setup.model) == (["chunked-nll"] if decoder else [])
    if not decoder:
        with pytest.raises(DistsimError, match="is a loss for decoders"):
            resolve(setup.job.model_copy(update={"loss": "chunked-nll"}))
    with pytest.raises(DistsimError, match=f"liger does not apply to models of family {setup.model.family}"):
        resolve(setup.job.model_copy(update={"loss": "liger"}))
    assert resolve(setup.job.model_copy(update={"loss": "cut"})).kernels.loss == "cut"


def test_a_replay_takes_no_loss_that_did_nothing() -> None:
    cells = {"model": "gpt2-xl", "gpu": "h100-sxm", "n_gpus": "1", "micro_batch": "4", "seq_len": "1024",
             "framework": "transformers", "precision": "bf16", "notes": "use_liger_kernel; Liger"}  # fmt: skip
    assert setup_of(Run(cells, 2)).job.loss is None
    assert setup_of(Run({**cells, "model": "llama-3-8b"}, 2)).job.loss == "liger"


def test_liger_replaces_what_it_has_for_a_family() -> None:
    """Nemotron: the loss alone; DeepSeek: no rotation."""
    for model, same in (("nemotron-4-15b", {"norm", "rope", "activation"}), ("deepseek-v3", {"rope"})):
        plain, patched = (
            resolve(Job(model=model, gpu="h100-sxm", gpus=1, framework="huggingface", loss=loss)).kernels
            for loss in (None, "liger")
        )
        kept = {
            name for name in ("norm", "rope", "activation", "loss") if getattr(plain, name) == getattr(patched, name)
        }
        assert kept == same


def test_a_loss_without_logits_leaves_a_compiled_job_its_allocator() -> None:
    """The slack of what is not compiled had come back with it, and taken all that the loss won."""
    job = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "framework": "torchtitan", "zero": 3, "compile": True}
    found = {loss: distsim.memory(**job, loss=loss).stages[0] for loss in (None, "cut", "fused-linear")}
    plain = found.pop(None)
    assert all(one.peak < plain.peak and one.categories["framework"] <= plain.categories["framework"]
               for one in found.values())  # fmt: skip


# pytorch/torchtune README, Memory and training speed, and its table of optimization flags: GiB at the peak of one
# A100, packed, micro-batches of 2, all layers recomputed, compiled, rank 8.
TORCHTUNE = [("llama-3-8b", 2048, {}, 16.2), ("llama-3-8b", 2048, {"quantize": "nf4-torchao"}, 7.4),
             ("llama-3.2-3b", 4096, {"offload": "activations"}, 8.5),
             ("llama-3.2-3b", 4096, {"offload": "activations", "quantize": "nf4-torchao"}, 4.6)]  # fmt: skip


@pytest.mark.parametrize(("model", "seq", "more", "gib"), TORCHTUNE, ids=str)
def test_torchtune_compiles_the_loss_of_a_chunk(model: str, seq: int, more: dict[str, Any], gib: float) -> None:
    """Nothing is fitted to these; the published figures are what was allocated."""
    found = distsim.memory(model=model, gpu="a100-sxm4-80gb", gpus=1, framework="torchtune", precision="pure-bf16",
                           seq=seq, micro_batch=2, recompute="full", compile=True, loss="chunked", lora_rank=8,
                           lora_targets="q,v,o", **more).stages[0]  # fmt: skip
    allocated = sum(size for name, size in found.categories.items() if name != "framework")
    assert allocated / 2**30 == pytest.approx(gib, rel=0.06)


def test_a_head_in_chunks_of_stated_tokens_keeps_no_logits() -> None:
    """torchtitan's chunked loss: the peak does not grow with the vocabulary beyond one chunk."""
    job = {"model": "llama-3-8b", "framework": "torchtitan", "gpu": "h100-sxm", "gpus": 8, "zero": 3, "seq": 8192,
           "recompute": "full"}  # fmt: skip
    grown = {
        loss: distsim.memory(**job, loss=loss, micro_batch=8).peak
        - distsim.memory(**job, loss=loss, micro_batch=4).peak
        for loss in (None, "chunked-head")
    }
    logits = 4 * 8192 * 128_256 * 2
    assert grown["chunked-head"] < 0.5 * grown[None]
    assert grown[None] - grown["chunked-head"] > 2 * logits


def test_a_chunk_that_backward_computes_again_is_multiplied_four_times_and_makes_no_gradient_in_forward() -> None:
    """TRL's chunked_nll: 256 tokens of logits; the product once forward, once more and twice for gradients."""
    setup = _setup(loss="chunked-nll")
    _, loss = _ends(setup)
    assert loss.saved[0].name == "head.normalised"
    assert {tensor.elements for tensor in loss.transient_forward} == {256 * WORDS}
    assert sum(tensor.name == "loss.weight_gradient" for tensor in loss.transient_backward) == 1
    once = replace(setup, kernels=setup.kernels.model_copy(update={"loss_chunk_again": False}))
    forward, backward = operation_sums(setup, Chip(setup), _ends(setup)[0])
    assert float(backward.matmul) == pytest.approx(
        float(forward.matmul) + float(operation_sums(once, Chip(once), _ends(once)[0])[1].matmul)
    )
    passed, less = moved_bytes(setup, loss), moved_bytes(once, loss)
    assert passed[1] - less[1] == pytest.approx(passed[0]) and passed[0] == less[0] > 0, "as does the loss"


def test_chunks_of_256_tokens_do_not_grow_with_the_sequence() -> None:
    """huggingface/trl pull request 5575: 2.1 GB of memory for a loss whose logits take 30 GB, as for one of 8 GB."""
    grown = _peak(loss="chunked-nll", seq=16384) - _peak(loss="chunked-nll", seq=8192)
    whole = _peak(seq=16384) - _peak(seq=8192)
    assert whole - grown > 2 * 8192 * WORDS * 8


@pytest.mark.parametrize(("precision", "each"), [("amp-bf16", 2), ("pure-bf16", 2), ("fp32", 4)])
def test_a_compiled_loss_keeps_the_logits_of_the_product_and_those_it_returns(precision: str, each: int) -> None:
    """torch 2.13's partition of head, softcap and cross entropy compiled together, where logits are returned, too."""
    setup = resolve(Job(model="gemma-2-2b", gpu="h100-sxm", gpus=1, framework="torch-compile", precision=precision,
                        seq=2048, micro_batch=4))  # fmt: skip
    loss = _ends(setup)[1]
    assert setup.model.attention_softcap or setup.model.logit_softcap
    assert sum(tensor.size_bytes for tensor in loss.saved) == 2 * 4 * 2048 * setup.vocab_padded * each


def test_a_loss_with_the_output_layer_may_have_a_number_of_chunks() -> None:
    """pytorch/torchtitan docs/chunked_loss.md (94609ad7): 327,680 tokens of Qwen3 14B on four tensor parallel ranks
    take 83.6 GiB in chunks of 8,192 tokens and 90.8 GiB in eight; whole logits would take thrice as much."""
    cells = {"model": "qwen3-14b", "gpu": "h100-sxm-96gb-500w", "n_gpus": "8", "tp": "4", "seq_len": "8192",
             "year": "2026", "micro_batch": "40", "global_batch": "80", "precision": "fsdp-bf16", "recompute": "full",
             "step_time_s": "90", "framework": "torchtitan", "mem_peak_gb_per_gpu": "83.6",
             "mem_kind": "allocated"}  # fmt: skip
    said = ("chunks of 8,192 tokens", "eight chunks")
    peaks = [replay(Run({**cells, "notes": f"eager loss in {words}"}, 2)).predicted_peak for words in said]
    assert [(peak or 0) / GIB for peak in peaks] == pytest.approx([83.6, 90.8], rel=0.1)
    named = ("8 loss chunks", "loss in 16 chunks", "chunked loss")
    assert [loss_chunks(Run({"notes": words}, 2)) for words in named] == [8, 16, 0]


def test_one_kernel_keeps_logits_and_no_log_softmax() -> None:
    """Llama 3 8B with adapters, eight sequences of 4,096 tokens on 4-bit weights: fms-acceleration's fused Triton cross
    entropy peaks at 45.3 GiB on an A100, transformers' own would at 61."""
    cells = {"model": "llama-3-8b", "gpu": "a100-sxm4-80gb", "n_gpus": "1", "seq_len": "4096", "year": "2024",
             "micro_batch": "8", "global_batch": "8", "precision": "bf16", "recompute": "full", "attention": "flash-2",
             "framework": "huggingface", "finetune_kind": "qlora", "lora_rank": "16", "tokens_per_s_per_gpu": "4078.3",
             "mem_peak_gb_per_gpu": "45.29", "mem_kind": "allocated"}  # fmt: skip
    said = "bitsandbytes nf4 base (not upcast); LoRA on q,k,v,o; "
    found = [replay(Run({**cells, "notes": said + words}, 2)) for words in ("fused Triton cross entropy", "")]
    assert found[0].memory_error == pytest.approx(0, abs=0.1)
    assert found[1].memory_error is not None and found[1].memory_error > 0.3


def test_a_loss_without_logits_has_none_to_cut_into_chunks() -> None:
    """Levanter's own loss makes a block of words at a time: chunks of whole logits had changed nothing, untold."""
    with pytest.raises(DistsimError, match="--loss chunked has no effect"):
        resolve(Job(model="llama-3-8b", gpu="h100-sxm", gpus=8, framework="levanter", loss="chunked"))


def test_recipes_of_frameworks_name_their_loss() -> None:
    """torchtitan's take it in eighths with the output layer: 8B on 64 GPUs then holds no more than 13 GiB, not 22."""
    job = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": 64, "seq": 8192, "recompute": "full"}
    plain = distsim.memory(**job, framework="torchtitan")
    assert any(note.endswith("--loss chunked-head-8") for note in plain.setup.notes)
    eighths = distsim.memory(**job, framework="torchtitan", loss="chunked-head-8")
    assert not any("--loss" in note for note in eighths.setup.notes)
    assert plain.peak - eighths.peak == pytest.approx(9.3 * GIB, rel=0.05)
    whole = distsim.memory(**job, framework="torchtitan", loss="chunked-head")
    assert whole.peak > plain.peak  # 8,192 tokens are one chunk of those
