"""What cells and notes of measured runs say of their peaks of memory: which counter, of which rank, and what was held
otherwise than its software does."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run
from distsim.interop.runs.told_traits import of_nanochat

_STEPWISE = "sequential technique:"
"""Notes of torchtune's README, which adds one technique after another; a chunked loss follows the first three."""
_CHUNKED = re.compile(rf"{_STEPWISE} \+ (?!packed|compile)|(?<!{_STEPWISE} \+ )chunked cross entropy")
_IN_BACKWARD = re.compile(rf"{_STEPWISE} \+ (fuse|optimizer|activation offload|8-bit)")
"""Those of its rows whose optimizer steps in backward."""
_OWN_KERNELS, _ASKED_FOR_FLASH = ("qwen", "baichuan"), "flash_attn 2.3.4"
"""Models whose own code of 2023 calls a flash kernel, and notes of runs that asked transformers for one; what other
models took grows with the square of the length, as scores in memory do."""
_USAGES = r"\bmem usages\b"
"""What forks of Megatron-LM call the share of a card that is not free by cudaMemGetInfo, which their last rank prints
behind each step (OpenEuroLLM/NVIDIA-Megatron-LM training/training.py, training_log; as AMD's)."""
_LOGGED = re.compile(rf"max over logged steps|{_USAGES}", re.IGNORECASE)
"""Notes of peaks from Megatron-LM's own logs, which its last rank prints; others measured all ranks."""
_OF_FIRST = re.compile(r"(?<!out of )(?:peak|memory|allocated|reserved)\b[^;|]{0,40} (?:of|on|from) rank 0\b|"
                       r"\brank 0(?:'s)? (?:peak|memory|allocated|reserved)", re.IGNORECASE)  # fmt: skip
"""Notes of peaks that the first rank alone counted, which stands on a pipeline's first stage."""
_READS_NARROW = re.compile(affirmed("precision[- _]aware"), re.IGNORECASE)
"""Notes of Megatron's optimizer that reads gradients as they are kept, instead of fp32 copies of its shard."""
_RESERVED = ("modelscope/ms-swift",)
"""Sources that print torch.cuda.max_memory_reserved, whatever their rows say (swift/trainers/mixin.py)."""
_SMI = r"(?:nvidia|rocm|amd)-smi|\b(?:py)?nvml\b|\bnvtop\b|\bnvitop\b|system\.gpu"
_USED = r"^(?!.*(?:reserved|alloc|active)).*\bused\b"
"""What nvidia-smi calls its figure, where no counter of torch is named beside it."""
_COUNTERS = {"device": re.compile(rf"{_SMI}|\bdevice\b|\bdriver\b|{_USED}"), "reserved": re.compile("reserved"),
             "allocated": re.compile("allocated|active")}  # fmt: skip
"""What the words of a row's mem_kind mean: the driver's figure, or one of torch's two counters."""
_COUNTERS_IN_NOTES = {
    "device": re.compile(rf"{_SMI}|{_USAGES}"),
    "reserved": re.compile(r"max_memory_reserved|(?:max|peak)(?:imum)? (?:memory )?reserved|mem_reserved"),
    "allocated": re.compile(r"max_memory_allocated|(?:max|peak)(?:imum)? (?:memory )?allocated|peak active"),
}
"""The same in notes, which tell of other things, too."""
_CLEARS_LATE = re.compile(affirmed(r"(?:Pytorch[- ])?Lightning(?:'s)? Trainer|pl\.Trainer|L\.Trainer"), re.IGNORECASE)
"""Notes of Lightning's Trainer, which lets gradients go between a step's forward and backward pass (Lightning-AI/
pytorch-lightning loops/optimization/automatic.py, Closure.closure), so that the loss finds those of the last step."""
_CACHED = re.compile(affirmed(r"past_key_values (?:stay|are) alive"), re.IGNORECASE)
_AT_ONCE = "benchmark_litgpt.py"
"""Notes of runs of Lightning-AI/lightning-thunder's script around litgpt's models, which takes cross entropy of all
logits at once; litgpt's own recipes take it of a few rows at a time."""
_PAGED = re.compile(r"paged", re.IGNORECASE)
"""Optimizers of bitsandbytes whose states are in unified memory (its documentation, explanations/optimizers: paged)."""
_OWN_SUM = "params+grads+optimizer + activations"
"""What a source adds up itself."""


def counter_told(run: Run) -> str | None:
    """What a peak counts, as its cell, its source or the notes say: ``device``, ``reserved`` or ``allocated``; None
    where nothing does."""
    kind, cell, notes = ((run.text(name) or "").lower() for name in ("mem_kind", "mem_peak_gb_per_gpu", "notes"))
    kind = kind or cell
    said = next((count for count, words in _COUNTERS.items() if hit(words, kind)), None)
    if said is None and run.source.startswith(_RESERVED):
        return "reserved"
    return said or next((count for count, words in _COUNTERS_IN_NOTES.items() if hit(words, notes)), None)


def rank_told(run: Run) -> str | None:
    """Which rank's peak it is, ``first`` or ``last``, where notes tell."""
    return "last" if hit(_LOGGED, run.notes) else "first" if hit(_OF_FIRST, run.notes) else None


def summed_by_source(run: Run) -> bool:
    """Whether the source added the peak up itself, of states and activations."""
    return _OWN_SUM in (run.text("mem_kind") or "")


def pages_states(run: Run) -> bool:
    """Whether the optimizer's states are in unified memory."""
    return hit(_PAGED, run.text("optimizer") or "") is not None


def steps_in_backward(run: Run) -> bool:
    """Whether notes tell of a table's row whose optimizer steps in backward."""
    return hit(_IN_BACKWARD, run.notes.lower()) is not None


def clears_late(run: Run) -> bool:
    """Whether notes name Lightning's Trainer."""
    return hit(_CLEARS_LATE, run.notes) is not None


def reads_narrow_gradients(run: Run) -> bool:
    """Whether notes name Megatron's precision-aware optimizer."""
    return hit(_READS_NARROW, run.notes) is not None


def composes_asked_flash(run: Run) -> bool:
    """Whether notes tell that transformers was asked for a flash kernel, of a model whose code calls none."""
    return _ASKED_FOR_FLASH in run.notes and not (run.text("model") or "").startswith(_OWN_KERNELS)


def adds_techniques(run: Run) -> bool:
    """Whether notes are of a table that adds one technique after another."""
    return _STEPWISE in run.notes.lower()


def keeps_cache(run: Run) -> bool:
    """Whether notes tell that a loop holds the keys and values that a model of transformers gives it."""
    return hit(_CACHED, run.notes) is not None


def chunks_loss(run: Run) -> bool:
    """Whether notes tell of a chunked loss, by name or by its place in that table."""
    return hit(_CHUNKED, run.notes.lower()) is not None


def takes_loss_at_once(run: Run) -> bool:
    """Whether notes name the script that takes the loss of all logits at once."""
    return _AT_ONCE in run.notes.lower()


def returns_loss_alone(run: Run) -> bool:
    """Whether the model is of a script whose module gives the loss alone (karpathy/nanochat gpt.py), not the logits
    beside it."""
    return of_nanochat(run)
