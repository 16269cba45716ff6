"""What torchao's eager linear layers in 8 bits run: plain kernels, bytes they move, and CPU time of the host.

``python benchmarks/float8_issue.py`` needs torch and torchao (2.13 and 0.18 gave the figures of presets/precisions and
distsim/engine/kernels/launches.py) and no GPU: tensors are tiny, and each operation tells what it reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_host import least_seconds
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

WIDTH, CALLS, WARM = 64, 300, 30
MICRO = 1e6
NO_KERNELS = {"t", "view", "detach", "alias", "expand", "transpose", "_unsafe_view", "reshape", "clone"}
RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")


def layer(recipe: str = "") -> nn.Module:
    """A linear layer, quantised by a recipe or plain."""
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16))
    if recipe:
        convert_to_float8_training(module, config=Float8LinearConfig.from_recipe_name(recipe))
    return module


def given() -> torch.Tensor:
    """An input whose gradient is asked for."""
    return torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16, requires_grad=True)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Plain tensors among arguments or results."""
    if type(value) in (torch.Tensor, nn.Parameter):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one)


class Counted(TorchDispatchMode):
    """Operations, and the bytes that those on whole matrices read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels, self.moved = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0]
        if name not in NO_KERNELS and not name.endswith("mm") and any(True for _ in tensors(args)):
            self.kernels += 1
            every = [*tensors(args), *tensors(out)]
            self.moved += sum(one.numel() * one.element_size() for one in every if one.numel() >= WIDTH * WIDTH)
        return out


def main() -> None:
    """Print a line per recipe."""
    torch.set_num_threads(1)
    plain = least_seconds(layer(), given, CALLS, WARM)
    for recipe in RECIPES:
        module, forward, backward = layer(recipe), Counted(), Counted()
        with forward:
            out = module(given())
        gradient = torch.ones_like(out)
        with backward:
            out.backward(gradient)
        taken = least_seconds(module, given, CALLS, WARM)
        for phase, counted, seconds, less in zip(
            ("forward", "backward"), (forward, backward), taken, plain, strict=True
        ):
            print(f"{recipe:20s} {phase:9s} {counted.kernels:3d} kernels beside products, "
                  f"{counted.moved / WIDTH**2:5.0f} bytes an element of one matrix, "
                  f"{(seconds - less) * MICRO:4.0f} us more than a plain layer")  # fmt: skip


if __name__ == "__main__":
    main()
