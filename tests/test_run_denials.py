"""Notes of measured runs that deny the words of a setting, or use them of something else."""

from __future__ import annotations

import pytest

from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import (
    MissingCell,
    Run,
    expert_kernels,
    expert_routing,
    loss_notes,
    overlap_notes,
    pipeline_notes,
    precision_notes,
    sample_lengths,
    software_notes,
)
from distsim.interop.runs import graphs as run_graphs
from distsim.interop.runs.attention import kernel_said, narrow_attention, reads_chosen_keys
from distsim.interop.runs.denials import told_of
from distsim.interop.runs.fusions import compiles_loss, composes_activations, composes_loss
from distsim.interop.runs.models import model_of
from distsim.interop.runs.recompute_notes import denies_recomputation
from distsim.interop.runs.sample_lengths import packed_options, unpadded_tokens
from distsim.interop.runs.software_notes import compiled


def _run(notes: str) -> Run:
    return Run({"id": "a", "seq_len": "512", "notes": notes}, 2)


@pytest.mark.parametrize(
    ("notes", "kind"),
    [("no fp32 gradients", None), ("fp32 gradient accumulation off", None), ("fp32 gradient norm", None),
     ("bf16 gradients instead of fp32 gradients", "bf16"), ("--no-accumulate-allreduce-grads-in-fp32", None),
     ("grad_reduce_in_fp32: False", "bf16"), ("grad_reduce_in_fp32=True", "fp32"), ("bf16 gradients", "bf16"),
     ("bf16 gradient reduction commented out", None), ("FP32 main params and gradients, BF16 moments", "fp32"),
     ("BF16, FP32 all-reduce of gradients", "fp32"), ("wkv, bf16 reduction of gradients", "bf16"),
     ("gradients all-reduced in fp32", "fp32"), ("bf16 gradients rather than fp32 gradients", "bf16"),
     ("fp32 parameters and bf16 gradients", "bf16")],
)  # fmt: skip
def test_formats_of_gradients(notes: str, kind: str | None) -> None:
    assert precision_notes.gradients_of(_run(notes)) == kind


@pytest.mark.parametrize(
    ("notes", "tokens"),
    [("unpad", 256), ("unpad: False", None), ("unpadded vocabulary", None), ("vocabulary not padded", None),
     ("vocabulary unpadded; samples not padded", 256)],
)  # fmt: skip
def test_padding_of_samples_and_of_words(notes: str, tokens: int | None) -> None:
    assert unpadded_tokens(_run(notes), causal=False) == tokens


@pytest.mark.parametrize(
    ("notes", "tokens"),
    [("packs of 512 (2.0 samples each)", 256), ("packed samples (2.0 per 256 tokens)", 128),
     ("packed into rows (2.5 sequences a row on average)", 205), ("packed, 4 examples per sequence", 128),
     ("packs (0 samples each)", None), ("4 nodes (2 samples each)", None), ("not packed (2.0 samples each)", None)],
)  # fmt: skip
def test_packs(notes: str, tokens: int | None) -> None:
    assert packed_options(_run(notes), 0).get("sample_tokens") == tokens


@pytest.mark.parametrize(
    ("notes", "tokens"),
    [("packed short documents: attention is nearly free", 427), ("samples packed, attention only within each", 427),
     ("not packed documents", None), ("packed 16,384-token rows", None)],
)  # fmt: skip
def test_documents_attend_to_themselves_in_fine_tuning_too(notes: str, tokens: int | None) -> None:
    run = Run({"seq_len": "16384", "finetune_kind": "full", "framework": "torchtitan", "notes": notes}, 1)
    assert packed_options(run, 0).get("sample_tokens") == tokens


@pytest.mark.parametrize(("seq", "tokens"), [(4096, 200), (16384, 200), (131072, None)])
def test_recipes_of_short_samples_say_nothing_of_long_sequences(seq: int, tokens: int | None) -> None:
    run = Run({"seq_len": str(seq), "finetune_kind": "full", "framework": "megatron-bridge"}, 1)
    assert packed_options(run, 200).get("sample_tokens") == tokens


@pytest.mark.parametrize(
    ("notes", "chunks"),
    [("8 loss chunks", 8), ("99999 loss chunks", 0), ("loss in 4 chunks was slower", 0), ("not loss in 4 chunks", 0)],
)
def test_chunks_of_the_loss(notes: str, chunks: int) -> None:
    assert loss_notes.loss_chunks(_run(notes)) == chunks


@pytest.mark.parametrize(
    ("notes", "own", "loss"),
    [("fused linear cross entropy", (), "fused-linear"), ("FusedLinearCrossEntropy", ("cut",), "cut"),
     ("fused-linear CE", ("liger",), "fused-linear"), ("Liger's fused linear cross entropy", ("cut",), "liger"),
     ("compiled cross entropy chunks the logits", ("chunked-head",), "chunked-head")],
)  # fmt: skip
def test_a_loss_that_each_library_has_its_own_of(notes: str, own: tuple[str, ...], loss: str) -> None:
    assert loss_notes.loss_of(_run(notes), own) == loss


@pytest.mark.parametrize(
    "notes",
    ["loss in chunks was tried", "chunked loss off", "liger kernel disabled", "no fused linear cross entropy"],
)
def test_losses_that_did_not_run(notes: str) -> None:
    assert loss_notes.loss_of(_run(notes), ("chunked",)) is None


@pytest.mark.parametrize("value", ["=False", ": false", "=0", " off", " is disabled"])
def test_settings_that_are_off(value: str) -> None:
    assert not expert_kernels.fuses_routers(_run(f"moe_router_fusion{value}"))
    assert not expert_routing.sends_once(_run(f"enable_deepep{value}"))
    assert not expert_routing.forced_router(_run(f"moe_router_force_load_balancing{value}"), "balanced")
    assert loss_notes.predicted_share(_run(f"dense_seq_output{value}")) != loss_notes.MASKED_SHARE
    assert not expert_kernels.library_experts(_run(f"QuACK{value}"))
    assert not compiles_loss(_run(f"fused cross entropy{value}"))


def test_settings_that_are_on() -> None:
    assert expert_kernels.fuses_routers(_run("moe_router_fusion=True"))
    assert expert_routing.sends_once(_run("moe_enable_deepep=True"))
    assert expert_routing.sends_each(_run("moe_token_dispatcher_type=alltoall"))
    assert not expert_routing.gathers_all(_run("moe_token_dispatcher_type=alltoall"))
    assert expert_routing.gathers_all(_run("--moe-token-dispatcher-type=allgather"))
    assert expert_routing.forced_router(_run("moe_router_force_load_balancing"), "balanced") == "balanced"
    assert expert_routing.forced_router(_run("debug.force_balanced_routing"), "balanced") == "balanced"
    assert loss_notes.predicted_share(_run("dense_seq_output")) == loss_notes.MASKED_SHARE


@pytest.mark.parametrize(
    ("notes", "grouped", "looped"),
    [("dropless routing by torch._grouped_mm", True, False), ("grouped GEMM experts", True, False),
     ("grouped_mm", True, False), ("no grouped GEMM", False, True), ("a Python loop over 128 experts", False, True),
     ("dispatch loop of the experts in eager", False, True),
     ("experts a ModuleList with a Python loop", False, True), ("group_by_length", False, False)],
)  # fmt: skip
def test_how_experts_are_multiplied(notes: str, grouped: bool, looped: bool) -> None:
    assert expert_kernels.groups_experts(_run(notes)) is grouped and expert_kernels.loops_experts(_run(notes)) is looped
    assert expert_kernels.groups_by_torch(_run(notes)) is ("grouped_mm" in notes)


def test_primus_turbo_s_experts() -> None:
    assert expert_kernels.groups_by_turbo(_run("use_turbo_grouped_gemm")) and expert_kernels.counts_on_gpu(
        _run("sync-free MoE")
    )
    assert expert_kernels.groups_by_turbo(_run("Turbo grouped GEMM, DeepEP dispatch"))
    assert not expert_kernels.groups_by_turbo(_run("no Turbo grouped GEMM")) and not expert_kernels.counts_on_gpu(
        _run("")
    )


@pytest.mark.parametrize(
    ("cell", "notes", "chosen"),
    [("flex", "", True), ("", "batched sparse-attention (DSA) kernels", True),
     ("", "Sparse MLA attention", True), ("flash", "no DSA kernels", False),
     ("flash", "sparse matmul", False)],
)  # fmt: skip
def test_kernels_that_read_chosen_keys(cell: str, notes: str, chosen: bool) -> None:
    assert reads_chosen_keys(Run({"id": "a", "attention": cell, "notes": notes}, 2)) is chosen


@pytest.mark.parametrize("notes", ["unbalanced router", "unevenly routed", "no force load balancing"])
def test_routers_that_nothing_balances(notes: str) -> None:
    assert expert_routing.forced_router(_run(notes), "balanced") is None


def test_whose_cross_entropy_is_compiled() -> None:
    assert compiles_loss(_run("cross_entropy_loss_fusion: true")) and compiles_loss(_run("native fused cross entropy"))
    for words in ("fused cross entropy (te)", "transformer engine fused cross entropy", "no fused cross entropy"):
        assert not compiles_loss(_run(words))


@pytest.mark.parametrize(
    ("notes", "is_compiled"),
    [("compiled by Thunder", True), ("compiler thunder_transformerengine", True), ("torch.compile on", True),
     ("trained with torch.compile", True), ("no torch.compile", False), ("torch.compile off", False),
     ("with torch.compile of the loss alone", False), ("not compiled by Thunder", False), ("compiled kernels", False),
     ("torch.compile is not used", False), ("whether compiled is not said", False)],
)  # fmt: skip
def test_whole_models_that_notes_say_were_compiled(notes: str, is_compiled: bool) -> None:
    assert compiled(_run(notes)) is is_compiled
    assert compiled(Run({"notes": notes, "compile": "0"}, 2)) is False and compiled(Run({"compile": "1"}, 2))


def test_losses_and_activations_that_nothing_fuses() -> None:
    for words in ("no fused cross entropy", "activations and loss not fused", "loss is not fused"):
        assert composes_loss(_run(words)) and not compiles_loss(_run(words))
    assert composes_activations(_run("activations and loss not fused"))
    for words in ("fused cross entropy", "router not fused", "activations fused, rope not fused"):
        assert not composes_loss(_run(words)) and not composes_activations(_run(words))


@pytest.mark.parametrize(
    ("notes", "classifies"),
    [("classification head", True), ("GPT2ForSequenceClassification", True), ("NOT a language model head", True),
     ("no classification head", False), ("without a classification head", False), ("not a classification head", False),
     ("AutoModelForCausalLM instead of AutoModelForSequenceClassification", False),
     ("the classification head was not used", False), ("language model head, no sequence classification", False)],
)  # fmt: skip
def test_heads_that_tell_classes(notes: str, classifies: bool) -> None:
    model = model_of(Run({"id": "a", "model": "gpt2", "notes": notes}, 2))
    assert (model.output.predicts == "sequence-classes") is classifies


@pytest.mark.parametrize(
    ("notes", "factor"),
    [("capacity factor 1.0", 1.0), ("moe_expert_capacity_factor=1.25", 1.25), ("CF 1.5", 1.5),
     ("--moe-expert-capacity-factor 1.0", 1.0), ("without capacity factor", None), ("capacity factor -1", None),
     ("not with capacity factor 1", None), ("eval_capacity_factor=2.0", None), ("capacity factor 2.0 in eval", None)],
)  # fmt: skip
def test_capacities_of_experts(notes: str, factor: float | None) -> None:
    assert expert_routing.capacity_factor(_run(notes)) == factor


@pytest.mark.parametrize(
    ("notes", "kernel"),
    [("flash-attn 1.0.9", "flash-1"), ("flash_attn==2.3.6", "flash-2"), ("flash-attn 1.0.9 not used", None),
     ("flash-attn 2.5 was not installed", None), ("instead of flash-attn 2.5", None), ("flash-attn 2", None)],
)  # fmt: skip
def test_packages_of_flash_attention(notes: str, kernel: str | None) -> None:
    assert kernel_said(_run(notes)) == kernel


@pytest.mark.parametrize(
    ("notes", "narrow"),
    [("FP8 attention", True), ("attention in FP8", True), ("fp8_mha=1", True), ("no FP8 attention", False),
     ("everything but attention in FP8", False), ("fp8_dpa=False", False), ("FP8 attention was off", False)],
)  # fmt: skip
def test_attention_in_8_bits(notes: str, narrow: bool) -> None:
    assert (narrow_attention(_run(notes), "fp8") is not None) is narrow


@pytest.mark.parametrize(
    ("notes", "apart"),
    [("TP overlap off", True), ("TP overlap: no", True), ("tp_comm_overlap=False", True), ("no TP overlap", True),
     ("TP overlap on", False), ("TP overlap was not off", False), ("--tp-comm-overlap", False),
     ("overlap of the TP communication disabled (PMIx trouble)", True), ("overlap of TP is off", True),
     ("full recomputation, overlaps off", True), ("overlap of the TP communication on", False)],
)  # fmt: skip
def test_tensor_parallel_overlap(notes: str, apart: bool) -> None:
    assert overlap_notes.tensor_parallel_apart(_run(notes)) is apart


@pytest.mark.parametrize(
    ("notes", "says"),
    [("2D + AsyncTP", (True, False)), ("no async TP", (False, False)), ("AsyncTP off", (False, False)),
     ("asynchronous tensor parallelism", (True, False)), ("enable_async_tensor_parallel=True", (True, False)),
     ("enable_async_tensor_parallel = false", (False, False)), ("deterministic mode; flags", (False, True)),
     ("--deterministic-mode", (False, True)),
     ("no deterministic mode", (False, False)), ("deterministic mode off", (False, False))],
)  # fmt: skip
def test_modes_of_a_trainer(notes: str, says: tuple[bool, bool]) -> None:
    assert (overlap_notes.overlaps_tensor_parallel(_run(notes)), software_notes.deterministic(_run(notes))) == says


@pytest.mark.parametrize(
    ("notes", "named"),
    [("ZB-H1", "zb-h1"), ("1F1B instead of GPipe", None), ("no DualPipe", None), ("zb-v was slower", None),
     ("DualPipe", "dualpipe"), ("DualPipe-V rather than ZB-V", "dualpipe-v")],
)  # fmt: skip
def test_schedules_that_are_denied(notes: str, named: str | None) -> None:
    assert pipeline_notes.pipeline_options(Run({"pp": "4", "notes": notes}, 2)).get("schedule") == named


def test_only_samples_are_unpacked() -> None:
    with pytest.raises(MissingCell, match="not packed"):
        sample_lengths.check_lengths(_run("batch 2, max seq 4096 UNPACKED (real length shorter)"))
    with pytest.raises(MissingCell, match="upper limit"):
        sample_lengths.check_lengths(_run("sequence is at most 2048, not packed, mean not stated"))
    sample_lengths.check_lengths(_run("not packed; mean of 512 tokens stated"))
    for notes in ("nf4 weights unpacked in each pass", "GPTQ, unpacked by a kernel of its own", "not unpacked"):
        sample_lengths.check_lengths(_run(notes))


@pytest.mark.parametrize(
    ("notes", "graphs"),
    [("Base: whole-iteration CUDA graph. This run: no CUDA graph.", "none"),
     ("Base: whole-iteration CUDA graph. This run: TE partial CUDA graph.", "modules"),
     ("Base: whole-iteration CUDA graph. This run: EP16.", "iteration"), ("This run: CUDA graphs", "modules")],
)  # fmt: skip
def test_what_a_run_has_of_its_own_comes_before_what_it_varies(notes: str, graphs: str) -> None:
    assert run_graphs.graphs_of(_run(notes)) == graphs


@pytest.mark.parametrize(
    ("notes", "forced"),
    [("forced load balancing, mock data", True), ("router load balancing forced uniform", True),
     ("mock data, forced expert balance", True), ("force-balanced", True), ("no forced balance", False),
     ("random routing; highest of several runs", True), ("uniform routing without drops", True),
     ("random_expert_assignment=True", True), ("no random routing", False), ("random tokens, learned routing", False),
     ("MOE_ROUTER_FORCE_LOAD_BALANCING False (router not balanced by force)", False),
     ("ring context parallelism with causal load balancing", False), ("no forced load balancing", False)],
)  # fmt: skip
def test_routers_that_are_balanced_by_force(notes: str, forced: bool) -> None:
    assert expert_routing.forced_router(_run(notes), "balanced") == ("balanced" if forced else None)


@pytest.mark.parametrize(
    ("notes", "routing"),
    [("router fusion off", "composed"), ("no router fusion", "composed"), ("router fusion", "fused"), ("", "fused"),
     ("permutation and router not fused", "composed"),
     ("Base A1: graphs. This run: router fusion off.", "composed")],
)  # fmt: skip
def test_routers_without_a_kernel(notes: str, routing: str) -> None:
    assert expert_kernels.composes_routers(_run(notes)) is (routing == "composed")
    cells = {"id": "a", "model": "qwen3-30b-a3b", "gpu": "gb300", "n_gpus": "8", "tp": "1", "ep": "8",
             "year": "2026-07", "seq_len": "4096", "micro_batch": "1",
             "global_batch": "16", "precision": "bf16"}  # fmt: skip
    assert setup_of(Run({**cells, "framework": "megatron-bridge", "notes": notes}, 1)).kernels.routing == routing


@pytest.mark.parametrize(
    ("notes", "left_out"),
    [("overlap-grad-reduce, overlap-param-gather", True), ("overlap of gradients and parameters", True),
     ("gradient and parameter overlap on", True), ("distributed optimizer with overlap", True),
     ("overlap-grad-reduce; no TP overlap", True), ("overlap-grad-reduce, tp-comm-overlap", False),
     ("TP 4 with tp_comm_overlap; overlap of gradients", False), ("no overlap of gradients", False), ("", False)],
)  # fmt: skip
def test_overlaps_that_are_listed_without_tensor_parallel_ones(notes: str, left_out: bool) -> None:
    assert overlap_notes.leaves_tensor_parallel_out(_run(notes)) is left_out
    cells = {"id": "a", "model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "tp": "4", "seq_len": "4096",
             "micro_batch": "1", "global_batch": "16", "notes": notes}  # fmt: skip
    for framework, tiles in (("megatron-core", "off" if left_out else "fitted"), ("nemo", "fitted")):
        found = setup_of(Run({**cells, "framework": framework}, 1)).framework.traffic.tp_tiles
        assert found == ("off" if "no TP" in notes else tiles)


@pytest.mark.parametrize(
    ("notes", "beside"),
    [
        ("A2A overlap: no", False),
        ("A2A overlap", True),
        ("A2A overlap=no; x", False),
        ("A2A overlap off", False),
        ("A2A overlap: no limit", True),
        ("all-to-all overlap, graphs. This run: all-to-all overlap off.", False),
    ],
)
def test_no_as_a_value(notes: str, beside: bool | None) -> None:
    assert overlap_notes.overlaps_experts(_run(notes)) is beside
    assert loss_notes.loss_of(_run("liger: no"), ("liger",)) is None
    assert loss_notes.loss_of(_run("liger: no dropout"), ("liger",)) == "liger"


@pytest.mark.parametrize(
    ("notes", "denied"),
    [("no gradient checkpointing", True), ("activation checkpointing: off", True), ("without recomputation", True),
     ("gradient_checkpointing=False", True), ("no recompute flags", False), ("gradient checkpointing", False),
     ("recompute off for 2 layers", False), ("no checkpointing to disk", False)],
)  # fmt: skip
def test_recomputation(notes: str, denied: bool) -> None:
    assert denies_recomputation(notes) is denied


@pytest.mark.parametrize("text", [
    "we turned off Liger", "disabled Liger kernels", "we did not use Liger", "without using Liger",
    "compared with Liger kernels", "faster than with Liger", "Liger planned", "didn't use Liger",
    "Liger was not needed"])  # fmt: skip
def test_verbs_deny_too(text: str) -> None:
    assert not told_of("liger", text) and told_of("liger", f"{text}; Liger kernels")
