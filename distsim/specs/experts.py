"""The mixture-of-experts part of a model's MLPs."""

from typing import Literal, Self

from pydantic import model_validator

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, MaybeCount, Natural


class Experts(Spec):
    """The mixture-of-experts part of a model's MLPs."""

    count: Count
    """Routed experts per MoE layer."""
    per_token: Count
    """Experts that each token is sent to (top-k)."""
    ffn: Count
    """Inner width of one routed expert."""
    latent: MaybeCount = None
    """Width to which tokens are projected before they go to routed experts (Nemotron 3 Super); None means none."""
    latent_norms: bool = False
    """What routed experts read is normed behind that projection, and what each of them gives before they are summed
    (Muse Spark)."""
    shared: Natural = 0
    """Shared experts, which every token passes; all of them together have width ``shared_ffn``."""
    shared_ffn: Natural = 0
    """Inner width of the shared experts taken together."""
    shared_gate: bool = False
    """The shared experts' output is scaled by a learned sigmoid gate (Qwen2-MoE)."""
    router_bias: bool = False
    """The router is a linear layer with bias (GPT-OSS)."""
    bias: bool = False
    """The experts' linear layers have biases (GPT-OSS)."""
    clamp: bool = False
    """What their activation reads is clamped (GPT-OSS)."""
    score_softcap: bool = False
    """The router's logits are soft-capped (Laguna)."""
    score_bias: bool = False
    """One stored correction per expert that balances the router without a loss (ERNIE 4.5 counts it as a parameter)."""
    beside_mlp: bool | Literal["attention"] = False
    """They stand beside a dense MLP of the model's own ``ffn`` and are added to it, each with norms of its own; the
    router reads a norm too, and scales channels and experts (Gemma 4). Beside ``attention``: a norm of what the layer
    reads goes to router and experts, which are added behind attention and that MLP (Arctic)."""
    output_norm: bool = False
    """A norm after the experts, before the residual (A.X K1)."""
    zero: Natural = 0
    """Experts beside ``count`` that hand a token back as it came, among which the router chooses too (LongCat)."""
    idle: Natural = 0
    """Experts whose first product is stored and trained though nothing reads it: transformers' LongCat has one for each
    of ``zero``."""
    beside_dense: bool = False
    """Every layer is two, each with attention and a dense MLP; the experts read what the first MLP reads, and their
    output joins the residual behind the second (LongCat's shortcut, arXiv:2509.01322)."""
    groups: Count = 1
    """Equal groups of neighbouring experts, of which the router chooses ``groups_per_token`` before it chooses experts
    (DeepSeek's node-limited routing, arXiv:2412.19437, section 2.1.2); 1 where it chooses among all."""
    groups_per_token: Count = 1
    """Groups that a token's experts are of."""
    group_tokens: MaybeCount = None
    """Tokens among which an expert's slots are shared where it has room for a fixed number of them (GShard's groups,
    arXiv:2006.16668, section 2.2); None: those of one sequence."""
    dense_layers: tuple[int, ...] = ()
    """Indices of layers whose MLP is dense, with the model's own ``ffn``."""

    @property
    def choices(self) -> int:
        """What the router chooses among."""
        return self.count + self.zero

    @property
    def working_per_token(self) -> float:
        """Experts that compute something for a token, of those that it is sent to, under a balanced router."""
        return self.per_token * self.count / self.choices

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.per_token > self.choices:
            raise ValueError(f"per_token {self.per_token} is more than the {self.choices} experts there are")
        if self.count % self.groups:
            raise ValueError(f"groups {self.groups} do not divide the {self.count} experts")
        if self.groups_per_token > min(self.groups, self.per_token):
            least = f"the {self.groups} groups, nor than per_token {self.per_token}"
            raise ValueError(f"groups_per_token {self.groups_per_token} must not be more than {least}")
        chosen = self.groups_per_token * (self.count // self.groups)
        if self.groups > 1 and chosen < self.per_token:
            raise ValueError(f"per_token {self.per_token} is more than the {chosen} experts of groups_per_token groups")
        if self.beside_dense and (self.shared or self.dense_layers):
            raise ValueError("beside_dense needs experts in every layer and no shared ones")
        if (self.shared > 0) != (self.shared_ffn > 0):
            raise ValueError(
                f"shared {self.shared} and shared_ffn {self.shared_ffn} must be both zero or both positive"
            )
        return self
