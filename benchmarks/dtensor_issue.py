"""What modules on torch's DTensors cost the host, in microseconds of CPU time.

``python benchmarks/dtensor_issue.py`` needs torch (2.13 gave the figures of distsim/engine/kernels/launches.py) and no
GPU: tensors are tiny and the process group is a fake one, so that what remains is Python, the dispatcher and autograd.
The least of many calls counts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_host import least_seconds

RANKS, TOKENS, HIDDEN, CALLS, WARM = 8, 16, 64, 300, 30
MICRO = 1e6


class Inside(nn.Module):
    """A module with a name, which plans refer to."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Whatever the module makes of its input."""
        found: torch.Tensor = self.inner(values)
        return found


def main() -> None:
    """Print a line per module."""
    torch.set_num_threads(1)
    distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = init_device_mesh("cpu", (RANKS,))
    whole, part = torch.randn(1, TOKENS, HIDDEN), torch.randn(1, TOKENS // RANKS, HIDDEN)
    gathers = PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=False
    )
    cases: list[tuple[str, Callable[[], nn.Module], ParallelStyle | None, torch.Tensor]] = [
        ("linear, plain", lambda: nn.Linear(HIDDEN, HIDDEN, bias=False), None, whole),
        ("linear, by columns", lambda: nn.Linear(HIDDEN, HIDDEN * RANKS, bias=False), ColwiseParallel(), whole),
        ("linear, by rows, and scattered", lambda: nn.Linear(HIDDEN * RANKS, HIDDEN, bias=False),
         RowwiseParallel(output_layouts=Shard(1)), whole),
        ("RMSNorm, plain", lambda: nn.RMSNorm(HIDDEN), None, part),
        ("RMSNorm, of part of the sequence", lambda: nn.RMSNorm(HIDDEN), SequenceParallel(), part),
        ("gathered input", nn.Identity, gathers, part),
    ]  # fmt: skip
    for name, make, style, values in cases:
        module = Inside(make())
        if style is not None:
            parallelize_module(module, mesh, {"inner": style})

        def given(values: torch.Tensor = values) -> torch.Tensor:
            return values.detach().requires_grad_(True)

        forward, backward = least_seconds(module, given, CALLS, WARM)
        print(f"{name:34s} {forward * MICRO:5.0f} us forward, {backward * MICRO:5.0f} us backward")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
