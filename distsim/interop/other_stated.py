"""The keys that another tool's configuration states, by their last parts, and what its degrees come to."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ARGUMENTS = ("--tensor-model-parallel-size", "--micro-batch-size", "--num-layers")
"""Keys of Megatron's command line."""
NODES = ("num_nodes", "nnodes", "n_nodes")
PER_NODE = ("devices", "nproc_per_node", "gpus_per_node", "num_gpus_per_node", "num_gpus")
CONFIGURED = ("config_file",)
"""Arguments that name a configuration: of accelerate's launcher, and of torchtitan (``--job.config_file``)."""
_TARGET = "._target_"
_REFERENCE = re.compile(r"\$\{[\w.]*?(\w+)\}")


class Stated(NamedTuple):
    """A configuration's keys, and where it stands."""

    keys: Mapping[str, Any]
    framework: str
    folder: Path = Path()

    def of(self, *names: str) -> Any:
        """The value of the first key whose last part is one of the names."""
        return next((value for key, value in self.keys.items() if last_of(key) in names and value is not None), None)

    def number(self, *names: str) -> int:
        """A whole number of one of the keys; 0 where there is none above 0."""
        numbers = (v for k, v in self.keys.items() if last_of(k) in names and type(v) is int and v > 0)
        return next(numbers, 0)

    @property
    def arguments(self) -> bool:
        """Whether it is a command line of Megatron, on which what is not said is off."""
        return any(key in self.keys for key in ARGUMENTS)


def referred(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys of a YAML with the values of others that they refer to (``${trainer.precision}``), where those are
    stated."""
    values = {last_of(key): value for key, value in keys.items() if value is not None and "$" not in f"{value}"}
    whole = {key: _REFERENCE.fullmatch(value) for key, value in keys.items()
             if isinstance(value, str) and not key.startswith("--")}  # fmt: skip
    return {**keys, **{key: values[one[1].lower()] for key, one in whole.items() if one and one[1].lower() in values}}


def with_targets(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys with what of torch their own sections name (``_target_: torch.bfloat16``), as Megatron-Bridge writes formats
    and functions."""
    named = {key.removesuffix(_TARGET): value for key, value in keys.items()
             if key.endswith(_TARGET) and isinstance(value, str) and value.startswith("torch.")}  # fmt: skip
    return {key: named.get(key, value) if value in (None, "") else value for key, value in keys.items()}


def file_beside(folder: Path, named: str) -> Path | None:
    """The file that a configuration names, from its own folder or the working directory; None where it is not there."""
    with suppress(OSError, ValueError):  # a name too long for a file, or with a null
        return next((one for one in (folder / named, Path(named)) if one.is_file()), None)
    return None


def last_of(key: str) -> str:
    """A key without its section and hyphens."""
    return key.lstrip("-").rpartition(".")[2].replace("-", "_").lower()


def degrees_of(told: Mapping[str, str]) -> int:
    """Accelerators of one data parallel rank."""
    return math.prod(int(told.get(name, 1)) for name in ("tp", "pp", "cp"))


def ranks_of(told: Mapping[str, str]) -> int:
    """Data parallel ranks; 0 where nobody says how many accelerators there are."""
    return max(int(told["gpus"]) // degrees_of(told), 1) if "gpus" in told else 0
