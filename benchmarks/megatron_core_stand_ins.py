"""What takes the place of CUDA and of kernels that are not there when Megatron core is recorded on a CPU.

Import it before Megatron. Norms keep their input, contiguous, and attention keeps queries, keys and values, contiguous,
its output and a logarithm a row, as Transformer Engine's modules do; none of them computes what its name says.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any

import torch
import torch.distributed as dist

CPU = torch.device("cpu")
per_token = [1]
"""Experts that each token is sent to, evenly."""


class Stream:
    """A stream or event that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: Any) -> None: ...
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self


def _on_cpu(make: Any) -> Any:
    def made(*args: Any, **kwargs: Any) -> Any:
        if str(kwargs.get("device") or "").startswith("cuda"):
            kwargs["device"] = CPU
        kwargs.pop("pin_memory", None)
        return make(*args, **kwargs)

    return made


def _pretend() -> None:
    """A CPU that answers as a GPU where Megatron asks for one, with nothing compiled."""
    cuda, type_names = torch.cuda, {torch.bfloat16: "BFloat16", torch.float32: "Float"}
    for name in ("zeros", "ones", "empty", "tensor", "full", "arange", "zeros_like", "empty_like", "ones_like"):
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    for name in ("set_device", "synchronize", "manual_seed", "empty_cache", "_lazy_init"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    cuda.current_device = lambda: CPU
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    cuda.Stream = cuda.Event = Stream
    cuda.stream = cuda.current_stream = cuda.default_stream = lambda *args: Stream()
    torch.Tensor.type = lambda t, to=None, **kw: (
        f"torch.cuda.{type_names.get(t.dtype)}Tensor" if to is None else t.to(to)
    )
    torch.Tensor.cuda = torch.Tensor.pin_memory = lambda tensor, *args, **kwargs: tensor
    torch.compile = lambda function=None, **kwargs: function if function else (lambda other: other)

    def all_gather_object(found: list[Any], own: Any, group: Any = None) -> None:
        found[:] = [own] * len(found)

    dist.all_gather_object = all_gather_object


class Grouped(torch.autograd.Function):
    """Products of experts, which keep their input."""

    @staticmethod
    def forward(ctx: Any, tokens: torch.Tensor, weights: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(tokens, weights)
        ctx.counts = counts.tolist()
        return torch.cat([own @ weight for own, weight in zip(tokens.split(ctx.counts), weights, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        tokens, weights = ctx.saved_tensors
        parts = [*zip(tokens.split(ctx.counts), gradient.split(ctx.counts), weights, strict=True)]
        return torch.cat([g @ w.t() for _, g, w in parts]), torch.stack([t.t() @ g for t, g, _ in parts]), None


_pretend()
grouped = types.ModuleType("grouped_gemm")
grouped.ops = types.SimpleNamespace(gmm=lambda tokens, weights, counts, trans_b: Grouped.apply(tokens, weights, counts))
sys.modules["grouped_gemm"] = grouped

from megatron.core.optimizer import optimizer as megatron_optimizer  # noqa: E402
from megatron.core.tensor_parallel import ColumnParallelLinear  # noqa: E402
from megatron.core.tensor_parallel import random as megatron_random  # noqa: E402
from megatron.core.transformer import attention, dot_product_attention, multi_latent_attention  # noqa: E402
from megatron.core.transformer.identity_op import IdentityOp  # noqa: E402
from megatron.core.transformer.moe import moe_utils, router, token_dispatcher  # noqa: E402
from megatron.core.transformer.torch_norm import WrappedTorchNorm  # noqa: E402


class Normalised(torch.autograd.Function):
    """Keeps its input, contiguous; statistics, 4 bytes a row, are left out."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        rows, ctx.biased = rows.contiguous(), bias is not None
        ctx.save_for_backward(rows, weight)
        return rows * weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        rows, weight = ctx.saved_tensors
        sums = (gradient * rows).flatten(0, -2).sum(0), gradient.flatten(0, -2).sum(0)
        return gradient * weight, sums[0], sums[1] if ctx.biased else None


class Norm(torch.nn.Module):
    """A norm whose gradients are summed over tensor parallel ranks under sequence parallelism."""

    def __init__(self, config: Any, hidden_size: int, **rest: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        biased = config.normalization == "LayerNorm"
        self.bias = torch.nn.Parameter(torch.zeros_like(self.weight)) if biased else None
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return Normalised.apply(rows, self.weight, self.bias)


class Attended(torch.autograd.Function):
    """Keeps what a flash kernel keeps."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        output = query.new_zeros(*query.shape[:3], value.shape[-1]) + value.mean()
        ctx.save_for_backward(query, key, value, output, torch.zeros(query.shape[:3]))
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return tuple(torch.zeros_like(one) for one in ctx.saved_tensors[:3])


class Rotated(torch.autograd.Function):
    """A new tensor, of which backward needs nothing."""

    @staticmethod
    def forward(ctx: Any, heads: torch.Tensor) -> torch.Tensor:
        return heads.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone()


class Replicated(torch.nn.Linear):
    """Transformer Engine's linear module with parallel_mode "duplicated"."""

    def __init__(self, inner: int, outer: int, *, config: Any, **rest: Any) -> None:
        super().__init__(inner, outer, bias=False, dtype=config.params_dtype)
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, None]:
        return super().forward(rows), None


class NormedLinear(ColumnParallelLinear):
    """Transformer Engine's norm and product in one module, which registers the norm's parameters first."""

    def __init__(self, inner: int, outer: int, *, config: Any, **rest: Any) -> None:
        super().__init__(inner, outer, config=config, **rest)
        own, norm = dict(self._parameters), Norm(config, inner)
        self._parameters.clear()
        self.layer_norm_weight, self.layer_norm_bias = norm.weight, norm.bias
        self._parameters.update(own)

    def forward(self, rows: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(Normalised.apply(rows, self.layer_norm_weight, self.layer_norm_bias), *args, **kwargs)


def as_te_has_them(spec: Any) -> None:
    """Layers with the modules of Transformer Engine's specification: norms before plain attention and dense MLPs are
    part of the product that follows, down projections of latent attention are on every tensor parallel rank."""
    for layer in getattr(spec, "layer_specs", [spec]):
        parts = layer.submodules
        inner, mlp = parts.self_attention.submodules, parts.mlp.submodules
        if hasattr(inner, "linear_qkv"):
            inner.linear_qkv, parts.input_layernorm = NormedLinear, IdentityOp
        else:
            inner.linear_q_down_proj = inner.linear_kv_down_proj = Replicated
        if hasattr(mlp, "linear_fc1"):
            mlp.linear_fc1, parts.pre_mlp_layernorm = NormedLinear, IdentityOp


def _evenly(logits: torch.Tensor) -> torch.Tensor:
    """Scores by which every expert gets as many tokens."""
    rows, experts = logits.reshape(-1, logits.shape[-1]), logits.shape[-1]
    wanted, tokens = torch.full_like(rows, -5.0), torch.arange(len(rows))
    for choice in range(per_token[0]):
        wanted[tokens, (tokens * per_token[0] + choice) % experts] = 5.0 - choice / 10
    return logits * 0 + wanted.view_as(logits)


def _init(self: Any, config: Any, *args: Any, k_channels: Any = None, v_channels: int = 0, **kwargs: Any) -> None:
    """Megatron's attention with context parallelism and latent attention, which it leaves to Transformer Engine."""
    degree, config.context_parallel_size = config.context_parallel_size, 1
    plain_init(self, config, *args, **kwargs)
    config.context_parallel_size = degree


def _attend(self: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    return Attended.apply(query.contiguous(), key.contiguous(), value.contiguous()).flatten(2)


core = dot_product_attention.DotProductAttention
plain_init, core.__init__, core.forward = core.__init__, _init, _attend
WrappedTorchNorm.__new__ = lambda kind, config, hidden_size, **rest: Norm(config, hidden_size)
attention.apply_rotary_pos_emb = lambda heads, *args, **kwargs: Rotated.apply(heads)
multi_latent_attention.apply_rotary_pos_emb = attention.apply_rotary_pos_emb
multi_latent_attention.TELinear = Replicated
for missing in ("Linear", "TEColumnParallelLinear", "TELayerNormColumnParallelLinear"):
    if getattr(multi_latent_attention, missing, None) is None:
        setattr(multi_latent_attention, missing, type(missing, (), {}))
megatron_optimizer.clip_grad_by_total_norm_fp32 = lambda *args, **kwargs: None
megatron_random._set_cuda_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
megatron_random._get_cuda_rng_state = lambda *args, **kwargs: torch.get_rng_state()
megatron_random.FP8GlobalStateManager = types.SimpleNamespace(is_fp8_enabled=lambda: False)
megatron_random.activation_recompute_forward = megatron_random.fp8_autocast = lambda **kw: contextlib.nullcontext()
moe_utils.te_general_gemm = None
router.apply_random_logits = _evenly
token_dispatcher.maybe_move_tensor_to_cpu = lambda t, as_numpy=False, **kw: (
    t.numpy() if as_numpy and torch.is_tensor(t) else t
)
