"""What torch.compile keeps of layers of nanochat: python benchmarks/compiled_layers.py

Traces three layers under autocast on fake tensors, splits the graph as inductor does (AOTAutograd's partition of least
cut), and prints bytes that the middle layer keeps for backward, for each token and channel, weights not counted: with a
residual stream of 32 and of 16 bits, without and with value embeddings. Two of them are a copy of attention's output,
which a CPU's kernel gives head by head and a GPU's flash kernel as the product reads it. Needs torch, no GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.nn import functional

TOKENS, SAMPLES, WIDTH, HEADS, WORDS, GATE_CHANNELS = 1024, 8, 512, 8, 8192, 12
LAYERS = 3


def normed(x: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.size(-1),))


def rotated(x: Tensor, table: Tensor) -> Tensor:
    cosine, sine = table.chunk(2, -1)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine + second * sine, second * cosine - first * sine], -1).to(x.dtype)


class Layer(nn.Module):
    """Norms without weights behind the rotation, a squared ReLU, and maybe a table of values."""

    def __init__(self, values: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.values = nn.Embedding(WORDS, WIDTH).bfloat16() if values else None
        self.gate = nn.Linear(GATE_CHANNELS, HEADS, bias=False)

    def forward(self, x: Tensor, words: Tensor, table: Tensor) -> Tensor:
        read = normed(x)
        heads = (*read.shape[:2], HEADS, WIDTH // HEADS)
        query, key, value = (one(read).view(heads) for one in (self.query, self.key, self.value))
        if self.values is not None:
            gate = 2 * torch.sigmoid(self.gate(read[..., :GATE_CHANNELS]))
            value = value + gate.unsqueeze(-1) * self.values(words).view(heads)
        query, key = normed(rotated(query, table)), normed(rotated(key, table))
        seen = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.relu(self.up(normed(x))).square())


def kept(layers: int, stream: torch.dtype, values: bool) -> float:
    """Bytes that so many layers keep, for each token and channel."""
    network = nn.ModuleList(Layer(values) for _ in range(layers))
    names = list(dict(network.named_parameters()))
    saved: list[Tensor] = []

    def split(graph: Any, arguments: Any, **options: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(graph, arguments, **options)
        (output,) = (node for node in forward.graph.nodes if node.op == "output")
        made = [node for node in output.args[0][1:] if node is not None and node.op != "placeholder"]
        saved.extend(node.meta["val"] for node in made if isinstance(node.meta.get("val"), Tensor))
        return forward, backward

    def run(x: Tensor, words: Tensor, table: Tensor, *weights: Tensor) -> Tensor:
        own = dict(zip(names, weights, strict=True))
        with torch.autocast("cpu", torch.bfloat16):
            for number, layer in enumerate(network):
                mine = {name.partition(".")[2]: one for name, one in own.items() if name.startswith(f"{number}.")}
                x = torch.func.functional_call(layer, mine, (x, words, table))
        return x

    compiled = aot_function(
        run, fw_compiler=lambda graph, _: graph, bw_compiler=lambda graph, _: graph, partition_fn=split,
        decompositions=select_decomp_table(),
    )  # fmt: skip
    x = torch.rand(SAMPLES, TOKENS, WIDTH, dtype=stream, requires_grad=True)
    table = torch.rand(1, TOKENS, 1, WIDTH // HEADS).bfloat16()
    compiled(x, torch.zeros(SAMPLES, TOKENS, dtype=torch.long), table, *network.parameters()).float().sum().backward()
    tokens = SAMPLES * TOKENS
    return sum(one.numel() * one.itemsize for one in saved if one.shape[0] in (SAMPLES, tokens)) / (tokens * WIDTH)


def main() -> None:
    for values in (False, True):
        for stream in (torch.float32, torch.bfloat16):
            each = kept(LAYERS, stream, values) - kept(LAYERS - 1, stream, values)
            print(f"{'with' if values else 'without'} value embeddings, stream in {stream}: {each:.3f}")


if __name__ == "__main__":
    main()
