"""The kernels that a measured run had: those of its framework in its year, and what its words say of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distsim import catalog
from distsim.architectures import traits_of
from distsim.engine.jobs.profile import recipe_kernels, recipes_of, with_kernels
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.attention import own_softmax
from distsim.engine.runs.hand_written import hand_written, written_kernels
from distsim.engine.runs.noted_kernels import (
    TOLD,
    noted_kernels,
    told_kernels,
    told_of_software,
)
from distsim.engine.runs.software import recomputation_of
from distsim.engine.runs.transformers_kernels import earlier_kernels, modules_year
from distsim.engine.runs.years import in_force, recipe_year, run_year, year_ended
from distsim.formulas.compute import APART_PRODUCTS, BACKWARD_PRODUCTS
from distsim.interop.runs import Run, expert_routing, fusions, loss_notes
from distsim.interop.runs.attention import (
    block_said,
    fuses_backward,
    kernel_said,
    names_flash,
    narrow_attention,
    reads_chosen_keys,
)
from distsim.interop.runs.context import context_mode
from distsim.interop.runs.told_software import layers_from
from distsim.interop.runs.torch_releases import TORCH, in_container, names_exactly, names_torch, torch_released
from distsim.specs.context_modes import whole_kv_heads
from distsim.specs.framework import Framework
from distsim.specs.loss import Loss

COMPOSED = {
    "davinci": (
        2024.0, "megatron", {"norm": "eager", "rope": "eager", "activation": "eager", "gate_halves": False}
    ),
}  # fmt: skip
"""Architectures whose forks of a framework composed layers of plain operations before a year: Megatron on Ascend
(Ascend/AscendSpeed model/llama_model.py of 2023: RMSNorm, apply_rotary_pos_emb, LlamaParallelMLP; the fused norm of
model/rms_norm.py came in December, off unless asked for)."""
EFFICIENT_GROUPS_SINCE = 2, 14
"""The release of torch whose memory-efficient attention takes grouped keys, on NVIDIA's chips (its documentation of
scaled_dot_product_attention; 2.13 names flash attention and plain products alone)."""
FLASH_2_SINCE = 2023.55
"""FlashAttention-2 was published in the middle of July 2023 (Dao, arXiv:2307.08691); what software of before calls
flash attention is the first generation, but for runs of 2023 whose month nobody says."""


def recomputing_as_recipes(run: Run, setup: Setup) -> Setup:
    """The setup with what the framework's own recipes compute again, where the row does not say."""
    again = [one.again for one in recipes_of(setup.framework, setup.model, setup.accelerator, setup.precision.name)]
    names = next((kinds for kinds in reversed(again) if kinds is not None), ())
    if not names or run.text("recompute") is not None or setup.tuning is not None:
        return setup
    kernels = with_kernels(setup.kernels, {"selective": names}, f"framework {setup.framework.name}, recipes")
    return replace(setup, kernels=kernels, recompute="selective", layout=setup.layout.with_(selective=1))


def exchanging_as_recipes(run: Run, setup: Setup) -> Setup:
    """The setup whose context parallel ranks exchange as the framework's own recipe has them, where the row does not
    say and their number divides the heads of keys."""
    layout, model = setup.layout, setup.model
    named = recipes_of(setup.framework, model, setup.accelerator, setup.precision.name)
    mode = next((one.cp_mode for one in reversed(named) if one.cp_mode), layout.cp_mode)
    if mode == layout.cp_mode or layout.cp == 1 or context_mode(run) or not whole_kv_heads(model, layout.tp, layout.cp):
        return setup
    return replace(setup, layout=layout.with_(cp_mode=mode))


def _fuses_backward(run: Run, setup: Setup) -> bool | None:
    """Whether splash attention's backward is one kernel, as notes say, or since context parallel ranks form a ring,
    which needs Tokamax's (AI-Hypercomputer/maxtext configs/types.py, context_parallel_strategy); None where neither
    tells."""
    told, layout = fuses_backward(run), setup.layout
    ring = layout.cp > 1 and layout.cp_mode == "ring"
    return True if told is None and ring else told


def _attention_kernel(run: Run, setup: Setup, then: str | None) -> str:
    """The kernel that a row names, or that its framework has where it names flash attention; else that of ``then``, the
    software of its year, or the framework's."""
    if named := kernel_said(run):
        return named
    package = str(setup.framework.usual.get("named_flash", "")) if names_flash(run) else ""
    kernel = package or then or setup.kernels.attention_kernel
    return "flash-1" if kernel == "flash-2" and year_ended(run) < FLASH_2_SINCE else kernel


def with_kernels_of(run: Run, setup: Setup) -> Setup:
    """The setup with the kernels of its framework in the year of the run and, in their place, those that the row names
    or its notes tell of; where several tell of one kernel, the last here wins."""
    year, framework = run_year(run), setup.framework
    own = _with_attention(run, setup, _of_year(run, setup, year))
    if forced := expert_routing.forced_router(run, framework.usual.get("balanced_router", "balanced")):
        own["router"] = forced
    if share := loss_notes.predicted_share(run):
        own["predicted_share"] = share
    own |= told_kernels(run, TOLD)
    if layers := layers_from(run):
        own |= catalog.load("frameworks", layers).kernels.model_dump()
    own |= told_of_software(run, setup, own.get("expert_products", setup.kernels.expert_products))
    if fusions.composes_activations(run):
        own["activation"] = "eager"
    if own_softmax(run, framework):
        own |= {"softmax": "fused", "softmax_kernel": "one", "product_bias": "epilogue"}
    own |= composed_then(setup, year) | noted_kernels(run, setup)
    if setup.kernels.loss == "with-head":
        own |= _chunks(run, setup)
    own |= recomputation_of(run, framework).kernels
    where = f"framework {framework.name}, earlier"
    return replace(setup, kernels=with_kernels(setup.kernels, own, where)) if own else setup


def _with_attention(run: Run, setup: Setup, own: dict[str, Any]) -> dict[str, Any]:
    """The kernels of a year with the attention that the row names: its kernel, blocks, format, keys."""
    own["attention_kernel"] = _attention_kernel(run, setup, own.get("attention_kernel"))
    if setup.accelerator.chip.attention_block:
        if block := block_said(run):
            own["attention_block"] = block
        if (fused := _fuses_backward(run, setup)) is not None:
            own["attention_products"] = BACKWARD_PRODUCTS if fused else APART_PRODUCTS
    if setup.model.compressed_attention is not None and reads_chosen_keys(run):
        own["sparse_attention"] = "absorbed"
    if narrow := narrow_attention(run, setup.precision.name):
        own["attention_format"] = narrow
    return _with_keys(run, setup, own)


def _with_keys(run: Run, setup: Setup, own: dict[str, Any]) -> dict[str, Any]:
    """The kernels with what the attention that a row names does with windows and grouped keys."""
    if names_flash(run):  # the package takes both as they are
        own = {name: kernel for name, kernel in own.items() if name != "keys_expanded"}
        own |= {"attention_mask": "none"} if setup.kernels.attention_mask == "window" else {}
    if names_torch(run, EFFICIENT_GROUPS_SINCE) and traits_of(setup.accelerator).cuda:
        own["efficient_groups"] = True
    return own


def _of_year(run: Run, setup: Setup, year: float) -> dict[str, Any]:
    """What the software of a year had, where no recipe and no compiler takes its place."""
    framework = setup.framework
    own = {
        **earlier_kernels(run, framework, year),
        **in_force(earlier_families(framework, setup.model.family), modules_year(run, framework, year)),
        **_of_torch(run, framework, year),
    }
    replaced = recipe_kernels(framework, setup.model, setup.accelerator, setup.precision.name)
    if setup.compiled:
        replaced |= framework.compiled
    own = {name: kernel for name, kernel in own.items() if name not in replaced}
    written = hand_written(run, framework) and setup.kernels.modules == "own"
    return own | (written_kernels(setup, min(year, torch_released(run) or year)) if written else {})


def _of_torch(run: Run, framework: Framework, year: float) -> dict[str, Any]:
    """The attention kernel of the torch that notes name, and its norm's where that is torch's own, where that torch is
    older than the run."""
    released = torch_released(run) if framework.family == "torch" else None
    if released is not None and names_exactly(run, CUDNN_TRIED):
        return {"attention_kernel": "own"}
    if released is None or released >= year:
        return {}
    made = ("attention_kernel", "norm") if framework.kernels.norm_kernel == "torch" else ("attention_kernel",)
    then = in_force(framework.earlier, released) | _with_older_cudnn(run, framework, released)
    return {name: then[name] for name in made if name in then}


CUDNN_PREFERRED = 2026.2
"""Since when wheels of torch come with a cuDNN that its scaled_dot_product_attention prefers on Hopper and Blackwell:
2.11's bring 9.19, 2.10's 9.10, where it wants more than 9.15 (metadata of the wheels; huggingface/transformers pull
request 48163)."""

CUDNN_TRIED = "2.5.0"
"""A release that preferred cuDNN on Hopper; the next, days later, did not (pytorch.org/blog/pytorch2-5;
pytorch/pytorch pull request 138522, in 2.5.1)."""


def _with_older_cudnn(run: Run, framework: Framework, released: float) -> dict[str, Any]:
    """The attention kernel of a release whose wheels have an older cuDNN than torch prefers; NVIDIA's containers bring
    a newer one."""
    if released >= CUDNN_PREFERRED or in_container(run):
        return {}
    older = in_force(framework.earlier, TORCH["2.9"])
    return {name: older[name] for name in ("attention_kernel",) if name in older}


def composed_then(setup: Setup, year: float) -> dict[str, Any]:
    """What the framework's fork for the chip composed in a year."""
    until, family, kernels = COMPOSED.get(setup.accelerator.generation, (0.0, "", {}))
    return dict(kernels) if year < until and setup.framework.family == family else {}


def _chunks(run: Run, setup: Setup) -> dict[str, Any]:
    """Chunks of a loss as the notes say them, or as the software of the run's year cut them."""
    if parts := loss_notes.loss_chunks(run):
        return {"loss_chunks": parts}
    if tokens := loss_notes.chunk_tokens(run):
        return {"loss_chunk_tokens": tokens}
    loss: Loss | None = catalog.load("losses", setup.job.loss) if setup.job.loss else None
    return loss.earlier if loss is not None and recipe_year(run) < loss.until else {}


def earlier_families(framework: Framework, family: str) -> dict[int, dict[str, Any]]:
    """Kernels of a family up to a year, of a framework or of that whose modules run inside it."""
    entries = framework.earlier_families
    if not entries and framework.modules is not None:
        inner: Framework = catalog.load("frameworks", framework.modules)
        entries = inner.earlier_families
    return {until: families.get(family, {}) for until, families in entries.items()}
