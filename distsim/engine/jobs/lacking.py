"""Units that products run on: those that a recipe wants, or what stands in where an accelerator has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim import catalog
from distsim.architectures import traits_of
from distsim.errors import DistsimError
from distsim.layers.attention_kernel import FLASH_WIDTH
from distsim.specs.accelerator import Accelerator, Peak
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.model import Model
from distsim.specs.precision import Precision
from distsim.units import gib

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup

FIRST_FLASH = "flash-1"
XLA = "jax"
"""Family of frameworks whose compiler computes in wider formats what a chip has no units for."""

STAND_INS = {"int8": "fp8"}
"""For narrow products; others run as wide ones, as fp8 does on a chip whose only 8-bit units are for integers."""


def wide_units(peak: Peak, wanted: str) -> str | None:
    """Units for products of two or four bytes, and for those of narrow recipes without units of their own: what these
    multiply is in bf16. TF32 and bf16 are made in full precision where no unit multiplies them (cuBLAS on chips before
    Ampere widens bf16 to fp32), but for chips that state no fp32 rate (TPUs make bf16 passes)."""
    instead = {"tf32": ("fp32", "bf16", "fp16"), "fp16": ("bf16", "fp32")}.get(wanted, ("bf16", "fp32", "fp16"))
    return next((name for name in (wanted, *instead) if getattr(peak, name)), None)


def measured_as(chip: Accelerator, precision: Precision) -> str:
    """The chip's own architecture, and apart from it where products run in full precision for want of units: what was
    measured with those units says nothing of it."""
    used = wide_units(chip.peak, precision.math)
    return chip.own_generation if precision.math == "fp32" or used != "fp32" else f"{chip.own_generation} in fp32"


def narrow_units(peak: Peak, wanted: str) -> str | None:
    """Units for products of one byte or less, where the recipe has such."""
    if wanted not in ("fp8", "int8", "fp4"):
        return None
    return next((name for name in (wanted, STAND_INS.get(wanted)) if name and getattr(peak, name)), None)


def lacking_units(chip: Accelerator, precision: Precision, timed: bool = True) -> str:
    """A note on missing units, with what is ``timed`` in their place; nothing where the datasheet states the rates that
    the recipe needs."""
    peak, wanted = chip.peak, precision.math
    if getattr(peak, wanted):
        if precision.needs is None or getattr(peak, precision.needs):
            return ""
        words = f"{chip.name} has no block-scaling units for precision {precision.name}"
        return f"{words}; timed as plain {wanted}" if timed else words
    words = f"{chip.name} has no {wanted} units for precision {precision.name}"
    if not timed:
        return words
    counted = wide_units(peak, wanted)
    used = narrow_units(peak, wanted) or counted
    words = f"{words}; timed at its {used} rate"
    return words if counted == used else f"{words}, MFU relative to its {counted} rate"


def unit_refusal(chip: Accelerator, precision: Precision, framework: Framework) -> str:
    """What Transformer Engine (quantization.py, check_fp8_support, check_mxfp8_support, check_nvfp4_support) and
    torchao (torchtitan's converters) refuse on chips of NVIDIA and AMD without units for 8 or 4 bits; nothing where
    products run, or XLA widens them."""
    if precision.math not in ("fp8", "fp4") or not traits_of(chip).checked_units:
        return ""
    words = "" if framework.family == XLA else lacking_units(chip, precision, timed=False)
    return words and f"{words}: {framework.name} refuses it"


def refuse_missing_units(chip: Accelerator, precision: Precision, framework: Framework) -> None:
    """Raise what a framework refuses on a chip."""
    if words := unit_refusal(chip, precision, framework):
        raise DistsimError(
            words, f"use --precision {'fp8' if chip.peak.fp8 else 'bf16'}, or a --gpu that has them",
            "source: Transformer Engine and torchao require compute capability 8.9 for 8 bits, 10.0 for scaled blocks",
        )  # fmt: skip


def without_triton(chip: Accelerator, compiled: bool, loss: str | None) -> str:
    """What of a job is kernels of Triton that a chip does not run; nothing where there is none."""
    if traits_of(chip).triton:
        return ""
    if compiled:
        return f"torch.compile does not run on {chip.name}: Triton, whose kernels it writes, needs newer GPUs"
    written = loss is not None and catalog.load("losses", loss).triton
    return f"loss {loss} does not run on {chip.name}: Triton, whose kernels it is, needs newer GPUs" * written


def refuse_without_triton(chip: Accelerator, job: Job) -> None:
    """Raise what a job asks for in kernels of Triton that a chip does not run."""
    if words := without_triton(chip, bool(job.compile), job.loss):
        raise DistsimError(words, f"leave {'--compile' if job.compile else f'--loss {job.loss}'} out",
                           "source: Triton takes GPUs from compute capability 7.0 (Volta) on")  # fmt: skip


def other_software(chip: Accelerator, framework: Framework) -> str:
    """A note on a framework that does not run on an accelerator, or nothing."""
    only, usual = framework.only_on, only_software(chip)
    if only not in ("", chip.generation):
        return f"{framework.name} does not run on {chip.name}: it is the software of {only} accelerators"
    if usual is None or framework.family == catalog.load("frameworks", usual).family:
        return ""
    return f"{framework.name} does not run on {chip.name}, which has its own compiler: --framework {usual} does"


def own_software(chip: Accelerator) -> str | None:
    """The framework that stands for an accelerator's own compiler; None where common frameworks run."""
    return traits_of(chip).own_software or None


def only_software(chip: Accelerator) -> str | None:
    """The same, where the accelerator takes programs of that compiler alone."""
    return own_software(chip) if traits_of(chip).compiled_only else None


def unnamed_software(chip: Accelerator, job: Job) -> str:
    """A note on the framework that stands in where a job names none and the usual one does not run, or nothing."""
    own = "" if job.names_framework else own_software(chip) or ""
    return own and f"{chip.name} is timed under {own}: {job.framework} does not run on it; --framework selects another"


def without_flash(chip: Accelerator, attention: str, kernel: str) -> str:
    """A note on a chip that the framework's flash attention is not written for, or nothing."""
    runs = traits_of(chip).flash_attention
    if attention != "flash" or runs == "all" or (runs == "first" and kernel == FIRST_FLASH):
        return ""
    return (
        f"today's flash attention does not run on {chip.name}: figures are for a comparable kernel such as PyTorch's "
        "memory-efficient attention; use --attention eager for attention without a fused kernel"
    )


def rounded_products(chip: Accelerator, precision: Precision, framework: Framework) -> str:
    """A note on a framework that multiplies fp32 in another format unless it is told not to, or nothing."""
    really = framework.usual.get("precision_fp32")
    if precision.math != "fp32" or really in (None, "fp32") or not getattr(chip.peak, str(really)):
        return ""
    return (
        f"{framework.name} multiplies fp32 tensors on {str(really).upper()} units unless a program asks for more "
        f"precision; full fp32 is counted here: --precision {really} is what usually runs"
    )


def sixteen_bits(setup: Setup) -> str:
    """The recipe by which the framework trains in 16 bits on this chip; nothing where the chip has no units for them or
    the job is there already."""
    peak, usual = setup.accelerator.peak, setup.framework.usual
    narrow = "bf16" if peak.bf16 else "fp16" if peak.fp16 else ""
    if not narrow or setup.precision.math not in ("fp32", "tf32", *(() if peak.bf16 else ("bf16",))):
        return ""
    known = [str(usual.get(f"precision_{name}", "")) for name in (narrow, "bf16", "fp16")]
    return f"amp-{narrow}" if any(one.startswith("amp-") for one in known) else known[0] or narrow


def unasked_fp32(setup: Setup) -> str:
    """A note on fp32 that nobody asked for where the chip has faster units for 16 bits, or nothing."""
    recipe = sixteen_bits(setup)
    if setup.job.precision is not None or setup.precision.math != "fp32" or not recipe.startswith("amp-"):
        return ""
    return f"{setup.framework.name} trains in fp32 unless told otherwise; for autocast use --precision {recipe}"


def known_error(chip: Accelerator, framework: Framework) -> str:
    """A note on step times that are known to be off under a framework on GPUs, or on a chip, or nothing."""
    on_gpus = framework.off_on_gpus and not chip.chip.array
    told = (
        f"{framework.name} on GPUs: {framework.off_on_gpus}" * bool(on_gpus),
        f"{chip.name}: {chip.off}" * bool(chip.off),
    )
    return "; ".join(filter(None, told))


def wide_heads(chip: Accelerator, attention: str, model: Model) -> str:
    """A note on heads that flash attention on GPUs is too narrow for, or nothing."""
    widest = max(model.head_dim, model.global_attention.head_dim if model.global_attention else 0)
    others = model.latent_attention or model.compressed_attention
    if attention != "flash" or chip.chip.array or others or widest <= FLASH_WIDTH:
        return ""
    return (
        f"{model.name} has heads of width {widest}, but flash attention on GPUs supports at most {FLASH_WIDTH}: "
        "figures for these layers are for a comparable kernel such as PyTorch's memory-efficient attention"
    )


def several_devices(chip: Accelerator) -> str:
    """A note on a chip that programs see as several devices, which is computed as one, or nothing."""
    if not chip.devices:
        return ""
    apart = f": --gpu {chip.device} computes them apart" if chip.device else ""
    return (
        f"programs see {chip.devices} devices of {gib(chip.capacity / chip.devices)} in each {chip.name}, and need a "
        f"rank for each; one rank with all of its memory is computed here{apart}"
    )


def own_blocks(setup: Setup) -> str:
    """A note on products with a scale for each block under software that somebody named and that has no switch for
    them; XLA's makes its own of what it is given."""
    precision, framework = setup.precision, setup.framework
    scaled = precision.math == "fp4" or precision.needs is not None
    if not scaled or not setup.job.names_framework or framework.supports.scaled_blocks or framework.family == XLA:
        return ""
    return (
        f"{framework.name} has no switch for --precision {precision.name} that is known here: computed as code of your "
        "own with such products (Transformer Engine, torchao) would run it"
    )


def lacking(setup: Setup, timed: bool = True) -> tuple[str, ...]:
    """Notes on what of a job its accelerator does not have, with what is ``timed`` in its place."""
    chip, attention = setup.accelerator, setup.layout.attention
    named = other_software(chip, setup.framework) if setup.job.names_framework else unnamed_software(chip, setup.job)
    found = [named, several_devices(chip), lacking_units(chip, setup.precision, timed), own_blocks(setup)]
    if timed:
        found += [
            rounded_products(chip, setup.precision, setup.framework), unasked_fp32(setup),
            without_triton(chip, setup.compiled or setup.kernels.compiler == "inductor", None),
            known_error(chip, setup.framework),
        ]  # fmt: skip
        if setup.model.attention_layers:
            found += [without_flash(chip, attention, setup.kernels.attention_kernel),
                      wide_heads(chip, attention, setup.model)]  # fmt: skip
    return tuple(filter(None, found))
