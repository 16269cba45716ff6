"""Precisions as other tools' configurations name them, one key or several together. Words and defaults as in the tools'
sources and documentation: NVIDIA/NeMo nemo/utils/get_rank.py and collections/nlp/parts/utils_funcs.py,
torch_dtype_from_precision; collections/nlp/models/language_modeling/megatron_base_model.py, params_dtype, which is fp32
unless cfg.get('megatron_amp_O2', False); NeMo's guide, Communication Overlap (grad_sync_dtype); NVIDIA/Megatron-LM
megatron/training/arguments.py, validate_args; torchtitan config/job_config.py, Training.dtype; MaxText
configs/base.yml, dtype and weight_dtype (NeMo and Megatron looked up 2026-11, the others recalled)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distsim.interop.other_stated import Stated, last_of

_WORDS = {
    "bf16": "bf16 bfloat16 bf16-mixed bfloat16-mixed amp-bf16 bf16-amp",
    "fp16": "fp16 float16 half 16 16-mixed fp16-mixed float16-mixed amp-fp16",
    "fp32": "fp32 float32 single 32 32-true",
    "pure-bf16": "pure-bf16 bf16-true full-bf16 bf16-pure",
    "pure-fp16": "pure-fp16 16-true",
    "fp8": "fp8",
}
"""Recipe here -> what Lightning, NeMo, accelerate, Composer, torch and others call it."""
_MEANT = {word: name for name, words in _WORDS.items() for word in words.split()}
NARROW = ("nvfp4", "mxfp8", "fp8", "float8")
"""What of a word tells a recipe of 8 or 4 bits, the narrowest first."""
_OFF = "no"
"""accelerate's word for no mixed precision."""
_O2 = "megatron_amp_o2"
_FIRST_NEMO = ("model.micro_batch_size", "model.tensor_model_parallel_size")
"""Keys of which NeMo's programs before its second release have at least one; recipes of the second know no O2, their
weights are in 16 bits."""
BRIDGE = "megatron-bridge"
_RUN_BY = (BRIDGE, "megatron-lm")
"""Frameworks whose mixed_precision is Megatron's: Megatron-Bridge's, and accelerate's where Megatron runs the steps."""
_RECIPE = "_mixed"
"""Ends the names of Megatron-Bridge's recipes of precision (NVIDIA-NeMo/Megatron-Bridge training/mixed_precision.py,
bf16_mixed: grad_reduce_in_fp32 = True)."""
_OPTIMIZERS = {"optim", "optimizer"}
"""Sections in which a format is that of states."""


def plain_precision(value: Any) -> str:
    """The precision here that a word, or Lightning's number of bits, is; empty where it is none that is known."""
    word = f"{value}".lower().removeprefix("torch.").replace("_", "-")
    return _MEANT.get(word, "") if not isinstance(value, bool) else ""


def precision_recipe(key: str, word: Any, framework: str) -> str | None:
    """The recipe that a framework makes of a precision's word; None where it says nothing that is not so anyway, as
    bf16 does."""
    from distsim import catalog

    last, named = last_of(key), plain_precision(word)
    if last == "mixed_precision" and f"{word}".lower() == _OFF:
        named = "fp32"
    if last == "weight_dtype" or (framework == "torchtitan" and last == "dtype"):  # of weights, beside computation
        named = {"bf16": "pure-bf16"}.get(named, "")
    if named in ("", "bf16") or of_states(key):
        return None
    return f"{catalog.load('frameworks', framework).usual.get(f'precision_{named}', named)}"


def of_states(key: str) -> bool:
    """Whether a format is an optimizer's, and says nothing of the network's."""
    return bool(_OPTIMIZERS & set(key.lower().split(".")[:-1])) and last_of(key) == "dtype"


def understood(key: str, value: Any) -> bool:
    """Whether a precision's value says something that is known here."""
    word, known = f"{value}".lower(), plain_precision(value)
    if of_states(key):
        return known == "fp32"
    narrow = any(one in word for one in NARROW) or ".mx" in word
    return isinstance(value, bool) or bool(known) or narrow or (last_of(key) == "mixed_precision" and word == _OFF)


def nemo_bf16(told: dict[str, str], stated: Stated) -> None:
    """The recipe of 16 bits in a YAML of NeMo or Megatron: what gradients are summed in, and what weights are."""
    from distsim import catalog

    if "precision" not in told and "bf16" in _said(stated):
        usual = f"{catalog.load('frameworks', stated.framework).usual.get('precision_bf16', 'bf16')}"
        wide = sums_in_fp32(stated)
        told["precision"] = usual if wide is None else "bf16-fp32-grads" if wide else "bf16"
    half = {"bf16", "bf16-fp32-grads", "fp16"}
    if not _has_o2(told, stated) and told.get("precision") in half:
        told["precision"] = f"amp-{told['precision'].partition('-')[0]}"  # fp32 weights, which autocast rounds


def _has_o2(told: dict[str, str], stated: Stated) -> bool:
    """Whether weights are in 16 bits: as a file says, and in NeMo's first programs only where it does, but for chunks
    of stages and expert parallelism, which those refuse without (megatron_gpt_model.py)."""
    said = stated.of(_O2)
    if stated.framework == BRIDGE:
        return True
    if said is None:
        needed = any(int(told.get(name, 1)) > 1 for name in ("vpp", "ep"))
        return needed or not any(key in stated.keys for key in _FIRST_NEMO)
    return said is not False


def unstated_o2(told: dict[str, str], stated: Stated) -> str:
    """What to say where fp32 weights follow from what a file of NeMo leaves out."""
    recipe = told.get("precision", "")
    if stated.of(_O2) is not None or not recipe.startswith("amp-"):
        return ""
    return f"megatron_amp_O2 is not stated there, and off then: fp32 weights under autocast, --precision {recipe}"


def sixteen_beside_narrow(told: dict[str, str], stated: Stated) -> None:
    """Gradients beside products in 8 bits where what is not quantised is in fp16: Megatron sums those in 16 bits unless
    asked for more (megatron/training/arguments.py, validate_args: only bf16 turns sums in fp32 on). Beside products in
    8 or 4 bits and bf16 weights it does where it is asked for less (--grad-reduce-in-bf16)."""
    half = stated.of("fp16") is True and stated.framework.startswith("megatron")
    if half and told.get("precision") == "fp8" and not sums_in_fp32(stated):
        told["precision"] = "fp8-fp16-grads"
    elif sums_in_fp32(stated) is False and told.get("precision") in ("fp8", "mxfp8", "nvfp4"):
        told["precision"] += "-bf16-grads"


def _said(stated: Stated) -> Iterator[str]:
    for key, value in stated.keys.items():
        last = last_of(key)
        if last == "precision" or (last == "mixed_precision" and stated.framework in _RUN_BY):
            yield plain_precision(value)
        elif last in ("bf16", "fp16") and value is True:
            yield last


def sums_in_fp32(stated: Stated) -> bool | None:
    """Whether gradients are summed and reduced in fp32; None where nothing says so."""
    for name in ("grad_reduce_in_fp32", "accumulate_allreduce_grads_in_fp32"):
        if isinstance(wide := stated.of(name), bool):
            return wide
    if isinstance(half := stated.of("grad_reduce_in_bf16"), bool):
        return not half
    if named := plain_precision(stated.of("grad_sync_dtype")):
        return named == "fp32"
    recipe = f"{stated.of('mixed_precision')}".lower().replace("-", "_")
    if stated.framework == BRIDGE and recipe.endswith(_RECIPE):
        return "bf16" in recipe  # bf16_mixed and what is made of it; fp16_mixed does not
    return None
