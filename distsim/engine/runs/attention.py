"""Whether a measured run attended by a flash kernel: as its cell or notes say, or as its software did by its year."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.engine.runs.software import chip_of, preset_of
from distsim.engine.runs.transformers_kernels import MODULES
from distsim.interop.runs import Run
from distsim.interop.runs.attention import attention_said, kernel_said
from distsim.interop.runs.attention_notes import (
    composes_attention,
    has_own_softmax,
    has_torch_extension,
    is_megatron,
    names_levanters,
)
from distsim.interop.runs.precision_names import PRECISIONS, precision_like
from distsim.interop.runs.release import stated_year
from distsim.interop.runs.torch_releases import TORCH, torch_released
from distsim.specs.framework import Framework

FLASH_YEAR = 2023
"""Runs published before it precede flash attention in training frameworks (arXiv:2205.14135)."""
FLASH_YEARS = {("jax", "hopper"): 2024, ("habana", "gaudi"): 2024, ("torch", "xe-hpc"): 2026.2}
"""Where it came later: Transformer Engine uses cuDNN's on Hopper since January 2024 (its release notes, v1.2). Of the
same layouts in JAX-Toolbox's tables, those of 2023 on H100 take longer by what unfused attention costs. On Gaudi,
Intel's GPT-3 for MLPerf v3.0 of June 2023 composes it (its run_gpt.sh). torch on Intel's GPUs has kernels that train
since 2.11 (intel/torch-xpu-ops issue 2232; released in March 2026, recalled): until then scaled_dot_product_attention
composed it wherever a gradient was needed (issues 1749 and 2489)."""
MEGATRON_FLASH_YEAR = 2024
"""Megatron-LM itself, not its relatives, composed attention unless told --use-flash-attn, until Transformer Engine
became its usual implementation (--transformer-impl, arguments.py, early in 2024). Recalled; the peaks of twelve runs of
2023 (arXiv:2401.10241, table 4) have the scores in memory to within 8%, and without them fall short by 27 to 59%."""
ENCODER_FLASH_YEAR = 2024
"""Where a token sees all others: Megatron's kernel was for causal masks, and transformers' BERT composed its attention
until 4.41 (its release notes, May 2024)."""
SDPA_TORCH = TORCH["2.1"]
"""transformers calls torch's attention of releases from 2.1.1 on, composing it with older ones whatever the year
(utils/import_utils.py, is_torch_sdpa_available)."""
RELATIVE_FLASH_YEAR = 2026.5
"""Where a bias of distances is added to scores: T5Attention of transformers composed it until the middle of 2026
(huggingface/transformers pull request 47014)."""


def attention_of(run: Run, framework: Framework, causal: bool = True, relative: bool = False) -> str | None:
    """``flash`` or ``eager``, as the cell, the notes or the year say; None where nothing does."""
    if said := attention_said(run):
        return "eager" if said == "flash" and lacks_kernel(run, framework) else said
    kind, first_year = ("decoder", FLASH_YEAR) if causal else ("encoder", ENCODER_FLASH_YEAR)
    usual: float = framework.usual.get(f"{kind}_flash_year", first_year)
    if relative and framework.family == "torch":
        usual = RELATIVE_FLASH_YEAR
    if is_megatron(run):
        usual = MEGATRON_FLASH_YEAR
    first = FLASH_YEARS.get((framework.family, chip_of(run)), usual)
    long = framework.usual.get("flash_tokens", 0)
    if framework.family == "jax" and _wide_on_nvidia(run):
        return "eager"
    early = (_year(run, framework) or first) < first or _before_sdpa(run, framework)
    early = early or (run.number("seq_len") or long) < long
    return "eager" if early or composes_attention(run) else None


def _before_sdpa(run: Run, framework: Framework) -> bool:
    """Whether notes name a torch whose attention transformers does not call, where its modules run."""
    return MODULES in (framework.name, framework.modules) and (torch_released(run) or SDPA_TORCH) < SDPA_TORCH


def lacks_kernel(run: Run, framework: Framework) -> bool:
    """Whether a cell calls torch's attention flash of a release that has no such kernel for the chip."""
    first = FLASH_YEARS.get((framework.family, chip_of(run))) if framework.family == "torch" else None
    early = first is not None and (_year(run, framework) or first) < first
    return early and kernel_said(run) is None and not has_torch_extension(run)


def _year(run: Run, framework: Framework) -> float | None:
    """The year of a run's kernels: where those of a chip came with a release of torch, that of the torch that notes
    name."""
    told = torch_released(run) if (framework.family, chip_of(run)) in FLASH_YEARS else None
    return stated_year(run) if told is None else told


def assumed_kernel(run: Run, framework: Framework) -> str:
    """What a cell was taken for that names what its software had not got."""
    if attention_said(run) != "flash" or not lacks_kernel(run, framework):
        return ""
    return "attention is unfused: torch has no flash kernel for training on Intel GPUs before 2.11"


def _wide_on_nvidia(run: Run) -> bool:
    """Whether an NVIDIA chip attends in fp32, which the kernels that XLA's frameworks call there do not: cuDNN's take
    16 bits (keras.config.enable_flash_attention: inputs must be in float16 or bfloat16)."""
    chip, cell = preset_of(run), (run.text("precision") or "").lower()
    wide = (PRECISIONS.get(cell) or precision_like(cell)) in ("fp32", "tf32")
    return wide and chip is not None and traits_of(chip).cuda


def own_softmax(run: Run, framework: Framework) -> bool:
    """Whether notes name software that has a kernel for a softmax by itself."""
    return ("composed_softmax" in framework.usual and names_levanters(run)) or has_own_softmax(run)
