"""What replays of adapters on transformers read of notes, and what its Trainer and peft do where nobody says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from caching_allocator import Allocator, Place

from distsim import memory
from distsim.engine.evidence import Replay, replay
from distsim.engine.exchanges.data import data_flows
from distsim.engine.footprint.fragmentation import split_bytes
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.engine.jobs.tuning import recipe_of
from distsim.engine.kernels.weights import weight_work
from distsim.interop.runs import Run
from distsim.interop.runs.tuning import tuning_options
from distsim.units import GIB, MIB

LLAMA = {"model": "llama-7b", "gpu": "a100-sxm4-80gb", "n_gpus": "1", "seq_len": "512", "micro_batch": "2",
         "global_batch": "2", "framework": "huggingface", "precision": "bf16", "year": "2025", "finetune_kind": "lora",
         "lora_rank": "16", "step_time_s": "0.4"}  # fmt: skip
QWEN = {**LLAMA, "model": "qwen2.5-1.5b", "gpu": "rtx-4080", "micro_batch": "1", "global_batch": "1", "seq_len": "1024",
        "recompute": "full", "finetune_kind": "qlora", "attention": "sdpa", "optimizer": "paged_adamw_8bit",
        "mem_kind": "reserved", "mem_peak_gb_per_gpu": "4.36", "year": "2026-05"}  # fmt: skip
LOOP = "LoRA on the attention projections; own training loop"


def _replay(cells: dict[str, str] = LLAMA, **more: str) -> Replay:
    return replay(Run({**cells, **more}, 2))


def _setup(cells: dict[str, str] = LLAMA, **more: str) -> Setup:
    setup = _replay(cells, **more).setup
    assert setup is not None
    return setup


def _targets(**more: str) -> set[str]:
    tuning = _setup(**more).tuning
    assert tuning is not None
    return set(tuning.targets)


@pytest.mark.parametrize(
    ("notes", "targets"),
    [
        ("", "q v"), ("r16 on all linear layers", "q k v o gate up down"), ("all-linear", "q k v o gate up down"),
        ("adapters on all linear modules", "q k v o gate up down"), ("LoRA on the attention projections", "q k v o"),
        ("LoRA alpha 16, attention targets", "q k v o"), ("not on all linear layers", "q v"),
        ("40M trainable parameters at rank 16", "q k v o gate up down"), ("8,388,608 trainable parameters", "q v"),
        ("16.8M trained params", "q k v o"), ("30M trainable parameters", "q v"), ("6.7B parameters", "q v"),
    ],
)  # fmt: skip
def test_adapted_products_by_name_and_by_their_parameters(notes: str, targets: str) -> None:
    assert _targets(notes=notes) == set(targets.split())


def test_a_cell_of_targets_goes_over_notes() -> None:
    assert _targets(notes="40M trainable parameters", lora_targets="q,v") == {"q", "v"}
    assert _targets(notes="160M trainable parameters at rank 64", lora_rank="8") == _targets(notes="all-linear")


def test_trainer_checkpoints_where_it_is_asked_to() -> None:
    """TrainingArguments.gradient_checkpointing is False; peft's prepare_model_for_kbit_training turns it on."""
    assert _setup().recompute == "none"
    assert _setup(finetune_kind="qlora").recompute == "full"
    assert _setup(framework="axolotl").recompute == _setup(framework="LLaMA-Factory").recompute == "full"
    assert _setup(source="QwenLM/Qwen README").recompute == "full"
    assert _setup(notes="gradient checkpointing").recompute == "full"
    assert _setup(notes="no gradient checkpointing").recompute == "none"
    assert _setup(notes="gradient checkpointing and accumulation not said").recompute == "none"


def test_frozen_weights_in_16_bits_under_autocast() -> None:
    """Google's report on OpenLLaMA 7B, rank 16 on an A100: 28.2 GB at two sequences of 512 tokens, 20.5 at 256."""
    notes = "weights float16; 40M trainable parameters at rank 16"
    cells = {**LLAMA, "precision": "fp16", "year": "2023", "mem_kind": "nvidia-smi"}
    for tokens, printed in (("256", 20.5), ("512", 28.2)):
        told = _replay(cells, seq_len=tokens, notes=notes, mem_peak_gb_per_gpu=str(printed)).predicted_peak
        assert told is not None and told / GIB == pytest.approx(printed, rel=0.1)
    assert _setup(cells, notes="").precision.parameter_bytes == 4
    assert _setup(cells, notes=notes, finetune_kind="full").precision.parameter_bytes == 4


@pytest.mark.parametrize(
    ("kind", "notes", "packed"),
    [
        ("qlora", "weights and both moments bf16; NF4 base", "nf4"), ("qlora", "pretrained weights of the hub", "nf4"),
        ("qlora", "weights int8 (gptq)", "gptq-int8"), ("qlora", "adapters' weights fp32; base weights 8-bit", "int8"),
        ("lora", "weights 4-bit", "nf4"),
        ("lora", "weights bf16, 8-bit AdamW", None), ("lora", "weights not upcast", None),
    ],
)  # fmt: skip
def test_frozen_weights_are_quantised_where_the_kind_or_words_about_them_say_so(
    kind: str, notes: str, packed: str | None
) -> None:
    assert tuning_options(Run({"finetune_kind": kind, "notes": notes}, 2), {}).get("quantize") == packed


def test_transformers_composed_attention_until_december_2023() -> None:
    assert _setup(year="2023").layout.attention == "eager"
    assert _setup(year="2023", attention="flash-2").layout.attention == "flash"
    assert _setup(year="2024").layout.attention == "flash"
    assert _setup(year="2024", notes="torch 2.0.1").layout.attention == "eager"  # torch's own from 2.1.1 on
    assert _setup(year="2024", notes="torch 2.0.1", framework="fsdp").layout.attention == "flash"


def test_a_loop_without_autocast_is_fp32_behind_peft() -> None:
    """can-i-finetune-this (bench/runner.py at f841e52e): Qwen2.5 1.5B in NF4 on an RTX 4080 reserves 4.36 GiB and
    takes 0.41 s, 9.55 GiB without checkpointing; under autocast it would be 3.6 GiB and 0.24 s."""
    bare = _replay(QWEN, notes=f"{LOOP}, no autocast")
    assert bare.setup is not None and bare.setup.precision.name == "fp32"
    assert bare.predicted_peak is not None and bare.predicted_peak / GIB == pytest.approx(4.36, rel=0.03)
    unchecked = _replay(QWEN, notes=f"{LOOP}, no autocast", recompute="none", mem_peak_gb_per_gpu="9.55")
    assert unchecked.predicted_peak is not None and unchecked.predicted_peak / GIB == pytest.approx(9.55, rel=0.15)
    assert _setup(QWEN, notes=f"{LOOP}, no autocast", finetune_kind="lora").precision.name == "pure-bf16"
    assert _setup(QWEN, notes=f"{LOOP}, no autocast of norms").precision.name == "bf16"


def test_a_note_tells_16_bits_from_what_peft_prepares() -> None:
    job: dict[str, Any] = {"gpu": "rtx-4090", "gpus": 1, "framework": "huggingface", "lora_rank": 16, "quantize": "nf4"}
    told = {name: " ".join(memory("llama-7b", precision=name, **job).setup.notes) for name in ("pure-bf16", "fp32")}
    assert "--precision fp32" in told["pure-bf16"] and "--precision fp32" not in told["fp32"]
    assert "--precision fp32" not in " ".join(memory("llama-7b", **job).setup.notes)


def test_trainers_that_hold_adapters_in_bf16_cast_nothing() -> None:
    wide, narrow = (
        _setup(precision="pure-bf16", notes=notes).tuning for notes in ("", "AdamWBF16 (weights and both moments bf16)")
    )
    assert wide is not None and narrow is not None
    assert (wide.adapter.parameter_bytes, narrow.adapter.parameter_bytes) == (4, 2)
    assert (wide.product_bytes, narrow.product_bytes) == (4, 2)


def _loop(pool: Allocator, logits: int, steps: int) -> int:
    """Logits of ``steps`` micro-batches as a loop has them: named until the next ones are there."""
    named: Place | None = None
    for _ in range(steps):
        half, wide = pool.take(2 * logits), pool.take(4 * logits)
        kept = pool.take(4 * logits)
        pool.give(wide, named)
        named = half
        gradient, product = pool.take(4 * logits), None
        product = pool.take(4 * logits)
        pool.give(gradient, kept)
        narrow = pool.take(2 * logits)
        pool.give(product, narrow)
    return pool.reserved


def test_held_logits_split_a_block_that_backward_wants_whole() -> None:
    logits = 64 * MIB
    one, two, ten = (_loop(Allocator(), logits, steps) for steps in (1, 2, 10))
    assert (one, two, ten) == (14 * logits, 18 * logits, 18 * logits)
    cells = {**QWEN, "finetune_kind": "lora", "precision": "amp", "seq_len": "512", "notes": LOOP}
    setup = _setup(cells)
    kernels = setup.kernels.model_copy(update={"loss_holds_logits": "narrow"})
    (stage,) = build_stages(replace(setup, kernels=kernels))
    assert split_bytes(replace(setup, kernels=kernels), stage) == 4 * 512 * 151936
    assert split_bytes(setup, stage) == 0


@pytest.mark.parametrize(
    ("cells", "packed"),
    [
        ({}, None), ({"finetune_kind": "int8 lora"}, "int8"), ({"finetune_kind": "8bit-lora"}, "int8"),
        ({"finetune_kind": "4-bit"}, "nf4"), ({"finetune_kind": "loftq"}, "nf4"), ({"precision": "nf4"}, "nf4"),
        ({"precision": "4bit"}, "nf4"), ({"finetune_kind": "qlora"}, "nf4"), ({"finetune_kind": "rslora"}, None),
    ],
    ids=str,
)  # fmt: skip
def test_frozen_weights_of_few_bits(cells: dict[str, str], packed: str | None) -> None:
    found = _replay(**cells)
    assert found.setup is not None and found.setup.tuning is not None and not found.assumed
    assert found.setup.job.quantize == packed


@pytest.mark.parametrize("kind", ["prefix", "p-tuning", "freeze", "ia3", "bitfit", "lisa"])
def test_ways_to_fine_tune_that_are_not_described(kind: str) -> None:
    """They had been full fine-tuning."""
    assert f"finetune_kind {kind!r}" in _replay(finetune_kind=kind).reason


def test_kinds_of_adapters_in_other_words() -> None:
    assert _targets(finetune_kind="lora (all linear)") == _targets(notes="all-linear")
    for cell in ("r=16", "16/32", "r16 alpha 32"):
        assert _setup(lora_rank=cell).job.lora_rank == 16
    found = _replay(finetune_kind="DoRA")
    assert found.setup is not None and found.setup.job.dora and not found.assumed
    assert _replay(finetune_kind="DoRA", framework="nemo").assumed == "finetune_kind 'DoRA': modelled as LoRA"
    assert _setup(source="results/lora--llama-rank32-dora.json", framework="huggingface", lora_rank="8").job.dora
    assert not _setup(source="Doraemon/plugin", framework="huggingface", lora_rank="8").job.dora


@pytest.mark.parametrize(
    ("notes", "precision", "adapters"),
    [("", "amp-bf16", 4), ("base frozen in bf16", "bf16", 4), ("bf16 base", "bf16", 4), ("no bf16 base", "amp-bf16", 4),
     ("frozen base in bf16; adapters cast to bf16", "pure-bf16", 2),
     ("bf16 weights (model.to(bfloat16)) under torch.autocast bf16", "bf16", 4)],
)  # fmt: skip
def test_a_base_in_16_bits_is_not_cast(notes: str, precision: str, adapters: int) -> None:
    """Qwen3 0.6B under DDP on two RTX 4090 allocates 4,702 MiB; with a base of fp32 it was said to take 7,250, and
    casts of weights that never run to take the host half as long again."""
    cells = {"model": "qwen3-0.6b", "gpu": "rtx-4090", "n_gpus": "2", "seq_len": "512", "micro_batch": "2",
             "global_batch": "4", "framework": "torch-ddp", "precision": "bf16", "finetune_kind": "lora",
             "lora_rank": "16", "notes": f"LoRA on q,k,v,o; {notes}"}  # fmt: skip
    setup = _setup({**LLAMA, **cells})
    assert setup.precision.name == precision
    adapter = next(p for stage in build_stages(setup) for p, _ in stage.held() if p.held == "adapter")
    assert recipe_of(adapter, setup.precision, setup.tuning).parameter_bytes == adapters


def test_layers_with_adapters_in_flat_units_reduce_whole_gradients() -> None:
    """FSDP1 around layers alone: a flat parameter trains where a part of it does. Gradients of all 28 layers are
    reduced, not of the embedding's unit, which has no adapter; and no adapter's matrix has hooks of its own."""
    cells = {"model": "qwen3-0.6b", "gpu": "rtx-4090", "n_gpus": "2", "seq_len": "512", "micro_batch": "2",
             "global_batch": "4", "framework": "fsdp", "fsdp_kind": "FSDP1 FULL_SHARD", "zero_stage": "3",
             "precision": "bf16-true", "finetune_kind": "lora", "lora_rank": "16"}  # fmt: skip
    reduced, hooks = {}, {}
    for kind, notes in (("FSDP1 FULL_SHARD", ""), ("FSDP1 FULL_SHARD", "wrapped per decoder layer"),
                        ("FSDP2", "wrapped per decoder layer")):  # fmt: skip
        setup = _setup({**LLAMA, **cells, "fsdp_kind": kind}, notes=f"LoRA on q,k,v,o; {notes}")
        stage = build_stages(setup)[0]
        flows = data_flows(setup, exchange_of(setup), stage)
        reduced[kind, notes] = sum(f.calls * f.bytes_logical for f in flows if f.role == "gradients")
        hooks[kind, notes] = float(weight_work(setup, stage).hooks)
    by_policy, alone, second = reduced.values()
    adapters, layers = 4_587_520, 440_466_432 + 4_587_520
    assert alone / by_policy == pytest.approx(layers / adapters, rel=1e-2)
    assert second == pytest.approx(by_policy, rel=1e-2)
    assert [*hooks.values()] == [12 * (29 + 28 * 8), 12 * 29, 12 * 29]


def test_trl_leaves_embedding_and_head_beside_4_bits_in_16() -> None:
    """Its trainer casts them back in bf16 jobs, and since then prepares nothing; in fp16 it left them to peft. The peak
    is of a page on a laptop's RTX 3050: 2,239 MiB by TRL 0.24, told 38% too high before."""
    cells = {**QWEN, "gpu": "rtx-3050-laptop", "seq_len": "512", "grad_accum": "16", "global_batch": "16",
             "notes": "adapters on all linear layers", "mem_kind": "allocated", "mem_peak_gb_per_gpu": "2.187",
             "step_time_s": "14.12"}  # fmt: skip
    told = _replay(cells, framework="TRL 0.24")
    assert told.memory_error is not None and abs(told.memory_error) < 0.05
    wide = [_setup(cells, framework=name, precision=precision).tuning.others_fp32 for name, precision in (
        ("trl", "bf16"), ("SFTTrainer", "bf16"), ("trl", "fp16"), ("huggingface", "bf16"))]  # fmt: skip
    assert wide == [False, False, True, True]


def test_axolotl_takes_back_what_peft_makes_fp32() -> None:
    """Its loader does so for any model with adapters; peaks on a GB10 go from 32 to 43% too high to 8 to 17%."""
    assert not _setup(QWEN, framework="axolotl").tuning.others_fp32


def test_data_parallelism_of_ones_own_has_no_buckets() -> None:
    """torch's DDP holds all gradients once more; a loop over parameters that reduces each does not. Peaks of two
    students of one course on H100 and RTX PRO 6000 go from 10 to 32% too high to within 11%."""
    cells = {**LLAMA, "finetune_kind": "", "lora_rank": "", "n_gpus": "2", "dp": "2", "global_batch": "4"}
    ddp, own = (_setup(cells, framework="torch-ddp", notes=notes) for notes in ("DDP", "own data parallelism"))
    assert ddp.framework.buffers.replica_buckets == 1 and own.framework.buffers.replica_buckets is None
