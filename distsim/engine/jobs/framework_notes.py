"""What a user should know of the framework that a job runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from distsim import catalog
from distsim.engine.jobs.foreign_losses import foreign_loss
from distsim.engine.jobs.modules import module_notes
from distsim.engine.jobs.profile import fused_instead, has_words, least_zero
from distsim.errors import DistsimError
from distsim.formulas.bubbles import interleaved_group
from distsim.layers.attention_kernel import reads_chosen, reads_window
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.precision import Precision
from distsim.specs.support_rules import all_the_same, lacks

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup


def framework_notes(
    framework: Framework, model: Model, layout: Layout, kernels: Kernels, origins: Mapping[str, str],
    precision: Precision, job: Job, whole_model: bool,
) -> list[str]:  # fmt: skip
    """What a user should know of a framework: that nobody trains with it, what it shards or gathers where nobody says
    and distsim does not or does, in how many bytes it adds up gradients, the loss of its recipes; and how it attends to
    chosen keys. ``whole_model`` tells that no adapters train."""
    own = [*_replica_notes(framework), *_own_recompute(framework, model, layout),
           *_sharding_notes(framework, layout, origins, precision.name, job),
           *_wider_gradients(framework, precision, job), *_other_optimizer(framework, job),
           *_composed_update(framework, job, whole_model), *_paged_states(job),
           *module_notes(job, precision)]  # fmt: skip
    if whole_model and precision.master_bytes and layout.zero < framework.supports.master_zero:
        own.append(
            f"{framework.name} keeps no fp32 master copy unless DeepSpeed does (--zero 1): a model loaded in 16 bits "
            "trains in 16 bits (--precision pure-bf16), one loaded in fp32 trains under autocast (amp-bf16)"
        )
    if precision.gradient_bytes > precision.parameter_bytes and layout.zero < framework.supports.wide_sums_zero:
        own.append(f"{framework.name} refuses gradients wider than weights without ZeRO (--zero 1): computed anyway")
    if framework.recipes_loss and job.loss is None and has_words(model):
        own.append(
            f"the loss is computed over all tokens at once; recipes of {framework.name} compute it with --loss "
            f"{framework.recipes_loss}"
        )
    if framework.compiled_decoders and job.compile and model.causal and layout.attention == "flash":
        own.append(framework.compiled_decoders)
    if job.framework and (other := framework.alias_notes.get(job.framework.lower())):
        own.append(f"{job.framework} is {other}")
    cuts = _expert_cuts(framework, model, layout, job)
    attends = [*_attention_notes(model, layout, kernels), *_indexer_notes(framework, model),
               *_delta_notes(framework, model, kernels), *_mixer_notes(framework, model, kernels)]  # fmt: skip
    return [*own, *cuts, *_groups(framework, layout), *attends]


def _expert_cuts(framework: Framework, model: Model, layout: Layout, job: Job) -> list[str]:
    """A note where tensor parallelism leaves experts whole though the software would cut them, unless it is told."""
    both = model.experts and layout.ep > 1 and layout.tp > 1
    if not (both and framework.cuts_experts and job.etp is None):
        return []
    return [
        f"tensor parallelism leaves experts whole (--etp 1, which {framework.name} must be told; by itself it cuts "
        f"them like the rest: --etp {layout.tp})"
    ]


def _groups(framework: Framework, layout: Layout) -> list[str]:
    """A note where Megatron must be told how many micro-batches a chunk runs in a row, as stages do not divide them."""
    grouped = framework.supports.interleaving == "enough" and layout.schedule == "interleaved-1f1b"
    if not grouped or layout.pp == 1 or layout.micro_batches < layout.pp or not layout.micro_batches % layout.pp:
        return []
    size = interleaved_group(layout.pp, layout.micro_batches)
    return [
        f"{framework.name} interleaves {layout.micro_batches} micro-batches over {layout.pp} stages in groups of "
        f"{size}: --microbatch-group-size-per-virtual-pipeline-stage {size}"
    ]


def _attention_notes(model: Model, layout: Layout, kernels: Kernels) -> list[str]:
    """What a user should know of attention to chosen keys: whether all are read, and what reading fewer costs."""
    latent, blocks = model.latent_attention, model.block_indexer
    if blocks is not None and blocks.keys < layout.together:
        chosen = f"{model.name} attends to {blocks.blocks} blocks of {blocks.block} keys that its indexer selects"
        return [f"{chosen}; its attention is counted as dense, over all keys"]
    if table := model.compressed_attention:
        seen = f"{model.name} attends to the last {table.window} tokens and to keys that each stand for several tokens"
        if reads_window(model, layout, kernels):
            return [f"{seen}, with kernels that read only those"]
        return [f"{seen}; its attention is counted as products over all of both: no flash kernel supports its heads"]
    if latent is None or not latent.index_heads or (not reads_chosen(model, layout, kernels)
                                                    and latent.index_keys >= layout.together):  # fmt: skip
        return []
    chosen = f"{model.name} attends to the {latent.index_keys:,} keys that its indexer selects for each query"
    if reads_chosen(model, layout, kernels):
        return [
            f"{chosen}, with kernels that read only those and work directly on the latent of width {latent.kv_rank}"
        ]
    return [f"{chosen}; its attention is counted as dense, over all keys"]


def _indexer_notes(framework: Framework, model: Model) -> list[str]:
    """What transformers' modules do query by query, which no time here has (models/qwen4_exp, Qwen4ExpTextQSAIndexer:
    two loops of Python around what one query does)."""
    index = model.block_indexer
    if index is None or not index.pooled or not _transformers(framework):
        return []
    return [
        "the indexer is timed as one product for all queries; transformers' own code loops over queries in Python, a "
        "few dozen kernels for each in every layer that attends, and takes far longer"
    ]


def _transformers(framework: Framework) -> bool:
    """Whether it runs transformers' modules."""
    return "huggingface" in (framework.name, framework.modules, framework.based_on)


def _delta_notes(framework: Framework, model: Model, kernels: Kernels) -> list[str]:
    """What transformers falls back to where a package is missing that a step's time rests on; how much longer runs of
    Qwen3.8 27B on H20 took than told: docs/findings/attention.md."""
    if not _transformers(framework) or model.delta is None or model.delta.by_channel or kernels.delta_rule == "torch":
        return []
    return [
        "the gated delta rule is timed in kernels of flash-linear-attention; without that package transformers "
        "computes it in plain torch, whose backward takes time with the square of the length (published steps of a 27B "
        "model in sequences of 512 to 8,192 tokens took 1.5 to 2.6 times what is told with them)"
    ]


PLAIN_LOOPS = 2.5
"""How many times as high peaks are at most where transformers 5.24 computes mixers without those packages: a cut of
Granite 4's hybrid, 6.07 GB on fake tensors, 2.47 predicted (docs/findings/memory-frameworks.md)."""


def _mixer_notes(framework: Framework, model: Model, kernels: Kernels) -> list[str]:
    """What of memory rests on packages beside transformers."""
    packages = {
        "Mamba-2": "mamba-ssm" if model.mamba is not None and not model.mamba.step_rank else "",
        "the delta rule": "flash-linear-attention" if model.delta is not None and kernels.delta_rule != "torch" else "",
    }
    if not _transformers(framework):
        return []
    return [
        f"{mixer} keeps what kernels of {package} keep; without that package transformers' plain loops keep more, and "
        f"peaks are up to {PLAIN_LOOPS:g} times as high"
        for mixer, package in packages.items()
        if package
    ]


def _replica_notes(framework: Framework) -> list[str]:
    if not framework.stands_for:
        return []
    return [
        f"{framework.name} only reproduces published calculations; to train, use --framework {framework.stands_for}"
    ]


def _own_recompute(framework: Framework, model: Model, layout: Layout) -> list[str]:
    """A note on recomputation that the framework has no switch for: no search, plan or advice uses it unasked."""
    switches, name = framework.supports.recompute_switches, framework.name
    some = layout.recompute_layers > 0 and layout.recompute_layers * layout.pp < model.layers
    asked = (("operations", layout.selective, "recompute selective"), ("layers", some, "recompute-layers"))
    return [f"{name} has no switch for --{option}: computed as code of your own would run it"
            for kind, is_on, option in asked if is_on and kind not in switches]  # fmt: skip


def _anyway(name: str) -> str:
    return f"in bf16 {name} shards states over replicas even without ZeRO"


def refuse_other_stage(setup: Setup, zero: int) -> None:
    """Raise where a job that asks for a ZeRO stage runs at another."""
    if setup.layout.zero != zero:
        raise DistsimError(f"{_anyway(setup.framework.name)}, as ZeRO {setup.layout.zero}")


def _wider_gradients(framework: Framework, precision: Precision, job: Job) -> list[str]:
    """A note for a job that names its framework and no recipe, where that framework's own has wider gradients."""
    return _wider(framework, precision, job) if job.names_framework else []


def narrow_by_default(setup: Setup) -> list[str]:
    """The same where layouts are chosen for a framework that nobody named: what fits may not fit its own recipe."""
    return [] if setup.job.names_framework else _wider(setup.framework, setup.precision, setup.job)


def narrow_alone(setup: Setup, gradients: float, headroom: float) -> list[str]:
    """The same for one job that fits, and would not with gradients as wide as that; ``gradients`` and ``headroom`` in
    bytes on its fullest GPU."""
    if headroom < 0 or not (found := narrow_by_default(setup)):
        return []
    more = gradients * (usual_gradient_bytes(setup.framework, setup.precision) / setup.precision.gradient_bytes - 1)
    return [f"{found[0]}, with which it would not fit"] if more > headroom else []


def checkpoints_alone(setup: Setup) -> list[str]:
    """A note where a framework's default keeps out of a search whatever is not computed again."""
    own = setup.framework.supports.offload_layers == "checkpoints" and "activations" in setup.offload
    if not own or setup.job.offload is not None:
        return []
    return [f"layouts compute all layers again, and {setup.framework.name} keeps their inputs in host memory: "
            "--offload none tries others"]  # fmt: skip


def usual_gradient_bytes(framework: Framework, precision: Precision) -> float:
    """Bytes of a gradient by the recipe that a framework makes of this precision."""
    usual = _usual_recipe(framework, precision.name)
    return catalog.load("precisions", usual).gradient_bytes if usual is not None else precision.gradient_bytes


def _usual_recipe(framework: Framework, name: str) -> str | None:
    """What the recipes that a framework gives its users make of a precision, or what it usually makes of it."""
    given = (one.replayed[name] for one in framework.recipes if one.library and name in one.replayed)
    return next(given, framework.usual.get(f"precision_{name}"))


def _wider(framework: Framework, precision: Precision, job: Job) -> list[str]:
    wide = usual_gradient_bytes(framework, precision)
    usual = _usual_recipe(framework, precision.name)
    if (
        job.precision is not None
        or job.lora_rank is not None
        or framework.stands_for
        or wide <= precision.gradient_bytes
    ):
        return []
    return [
        f"--precision not given: using {precision.name}, with {precision.gradient_bytes:g}-byte gradients; "
        f"{framework.name} usually accumulates them in {wide:g} bytes: --precision {usual}"
    ]


def beyond_default(setup: Setup) -> list[str]:
    """Notes on what the default framework, which nobody named, would refuse by name: its rules hold only then."""
    if setup.job.names_framework:
        return []
    found = [one.problem for one in lacks(setup.framework, setup.model, setup.layout, setup.offload, setup.job)]
    found += filter(None, [foreign_loss(setup.framework, setup.job.loss)[0]])
    return [all_the_same(problem) for problem in found]


def beyond_default_at(other: Setup, own: Setup) -> str:
    """What the default framework would refuse of a job at another ZeRO stage, beside what it would of the job's own;
    nothing where somebody named it."""
    known = beyond_default(own)
    return "; ".join(note for note in beyond_default(other) if note not in known)


def _other_optimizer(framework: Framework, job: Job) -> list[str]:
    """A note where the framework's users mean another optimizer by the name."""
    usual = framework.usual.get(f"optimizer_{job.optimizer}")
    if usual is None:
        return []
    return [f"--optimizer {job.optimizer} is torch's version; {framework.name}'s own is --optimizer {usual}"]


def _composed_update(framework: Framework, job: Job, whole_model: bool) -> list[str]:
    """A note where torch's default stands for what a user may have fused, of a framework that he named."""
    fused = fused_instead(framework, job)
    if not (fused and whole_model and job.names_framework):
        return []
    return [
        f"--optimizer {job.optimizer or 'adamw'} is torch's default (foreach), which allocates temporaries as large as "
        f"one optimizer state in each step; --optimizer {fused} stands for fused=True"
    ]


def _paged_states(job: Job) -> list[str]:
    """A note for paged optimizers of bitsandbytes (documentation, reference/optim: unified memory moves states from the
    GPU to the host when GPU memory is exhausted)."""
    name = job.optimizer or ""
    if not name.replace("-", "_").lower().startswith("paged_"):
        return []
    return [
        f"{name}: its states are counted on the GPU, where they stay while they fit; otherwise CUDA pages them to the "
        "host and back in each step, which is not timed; torch's memory counters never include them"
    ]


def _sharding_notes(
    framework: Framework, layout: Layout, origins: Mapping[str, str], precision: str, job: Job
) -> list[str]:
    found, name = [], framework.name
    least = least_zero(framework, precision, int(layout.pp))
    if layout.zero == least > (job.zero or 0):
        found.append(f"{_anyway(name)}: computed as --zero {least}")
    gathers = origins.get("loss_parallel", "").startswith("framework") and not layout.loss_parallel
    if gathers and layout.tp > 1 and framework.usual.get("loss_parallel"):
        found.append(
            f"logits are gathered, as torch's tensor parallelism does; {name} keeps them sharded: --loss-parallel"
        )
    return found
