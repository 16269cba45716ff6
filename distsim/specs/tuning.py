"""Parameter-efficient fine-tuning: adapters on frozen weights (LoRA), which may be quantised (QLoRA)."""

from typing import TYPE_CHECKING, Literal, NamedTuple

from distsim.errors import did_you_mean
from distsim.specs.precision import Precision

if TYPE_CHECKING:
    from distsim.specs.quantization import Quantization

MIXERS = ("in_proj", "in_proj_qkvz", "in_proj_qkv", "qkv_proj", "in_proj_z", "in_proj_ba", "in_proj_b", "in_proj_a",
          "x_proj", "dt_proj", "a_proj", "b_proj", "f_proj", "f_a_proj", "f_b_proj", "g_proj", "g_a_proj", "g_b_proj",
          "output_gate", "out_proj", "linear_y", "linear_x", "linear_out")  # fmt: skip
"""Projections of what stands in attention's place, as transformers calls them."""
LATENT = {"q_a_proj": "q", "q_b_proj": "q", "kv_a_proj_with_mqa": "k", "kv_b_proj": "k"}
"""Halves of latent attention's projections, each with the letter that means both."""
INDEXER, BLOCK_INDEXER = ("wq_b", "wk", "weights_proj"), "index_qk_proj"
"""Projections of an indexer that chooses keys (DeepSeek-V3.2), and the one of Qwen4-Exp's."""
STREAMS = ("input_mix_weight_down", "input_mix_weight_up", "block_inject_weight")
"""Products that gate what is read of residual streams, and give the weights by which they are written (Qwen4-Exp)."""
NGRAMS = ("ple.key_proj", "ple.value_proj")
"""Products behind a table of n-grams, which peft finds by the ends of their names."""
EXPERT_LATENT = ("fc1_latent_proj", "fc2_latent_proj")
"""Projections to the width of routed experts, and back (Nemotron-H); Muse Spark's names are among GROUPS."""
LETTERS = (*NGRAMS, *STREAMS, "q", "k", "v", *LATENT, *INDEXER, BLOCK_INDEXER, "o", *MIXERS, "gate", "up", "down",
           "shared_expert_gate", "router", *EXPERT_LATENT, "experts", "transform", "head")  # fmt: skip
"""Products that may have an adapter, in the order in which they run."""
_ATTENTION, _MLP = ("q", "k", "v", "o"), ("gate", "up", "down")
GROUPS = {"attention": _ATTENTION, "qkv": ("q", "k", "v"), "mlp": _MLP, "mixers": MIXERS,
          "all-linear": tuple(name for name in LETTERS if name not in ("head", "experts", *LATENT)),
          "w1": ("gate",), "w2": ("down",), "w3": ("up",), "input_linear": ("gate", "up"), "output_linear": ("down",),
          "linear_qkv": ("q", "k", "v"), "linear_proj": ("o",), "linear_fc1": ("gate", "up"),
          "linear_fc2": ("down",), "pre_expert_proj": EXPERT_LATENT[:1], "post_expert_proj": EXPERT_LATENT[1:],
          **dict.fromkeys(("query_key_value", "c_attn", "wqkv", "w_pack"), ("q", "k", "v")),
          "query": ("q",), "key": ("k",), "value": ("v",), "dense": ("o",), "c_proj": ("o", "down"),
          **dict.fromkeys(("dense_h_to_4h", "gate_up_proj", "gate_up", "fc1", "fc_in", "c_fc"), ("gate", "up")),
          **dict.fromkeys(("dense_4h_to_h", "fc2", "fc_out"), ("down",)), "output_proj": ("o",)}  # fmt: skip
"""Words for several products: this field's, and those of other modules (Megatron's, LFM2's, Granite's, torchtune's; of
Falcon, GPT-NeoX, BLOOM, ChatGLM, Phi, OPT, GPT-J, GPT-2, Baichuan, InternLM and BERT)."""
ELSEWHERE = {"qkv_proj": _ATTENTION[:3], "out_proj": _ATTENTION[3:]}
"""Projections of mixers whose names are attention's in models without such mixers (Phi-3; OPT, MPT, GPT-J)."""
_CHOICES = (
    "q, k, v, o, gate, up, down, experts, head, attention, mlp, mixers, all-linear, or a mixer's in_proj, out_proj …"
)
WHOLE = ("embedding", "head", "norms")
"""Parts that can train whole beside adapters."""
_MODULES = {**dict.fromkeys(("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings"), WHOLE[0]),
            **dict.fromkeys(("lm_head", "embed_out", "output_layer"), WHOLE[1]), "norm": WHOLE[2]}  # fmt: skip
"""Modules by the names that transformers' classes give them -> the part that they are."""


class ExpertAdapters(NamedTuple):
    """Which matrices of routed experts have adapters, and how they run."""

    how: Literal["each", "shared", "tensors"] = "each"
    """As a framework's ``adapters.experts`` has it."""
    targets: frozenset[str] = frozenset()
    """Of gate, up and down."""
    up_rank: int = 0
    """Rank of the one adapter for gate and up where they are one tensor: twice the usual where both are named."""
    others: bool = True
    """``gate``, ``up`` and ``down`` mean the MLPs of all tokens too."""
    router: bool = False
    """The router has one that is folded into it like the experts'."""


class Tuning(NamedTuple):
    """What trains, and in how many bytes everything is held."""

    rank: int
    targets: frozenset[str]
    """Products that have an adapter."""
    whole: frozenset[str]
    """Parts that train whole."""
    dropout: bool
    """Adapters drop a part of their input: a mask, and a copy of the input for each."""
    adapter: Precision
    whole_as: Precision
    product_bytes: float
    """Bytes per element in which the adapters' products are computed."""
    own_inputs: bool
    """Each adapter casts its input anew, and keeps the copy."""
    splits_fused: bool
    """A fused projection of queries, keys and values can have adapters for some of them."""
    quantization: "Quantization | None"
    quantises_head: bool
    gathers_outputs: bool = False
    """Adapters of row-parallel products gather their output whole over tensor parallel ranks."""
    mlp: str = "modules"
    """How a gated MLP runs with its adapters, as a framework's ``adapters.mlp`` has it."""
    others_fp32: bool = False
    """What is frozen beside quantised weights is held in fp32, but for routed experts."""
    quantises_experts: bool = False
    """Experts are quantised even where they are no linear layers."""

    experts: ExpertAdapters = ExpertAdapters()
    unties: bool = False
    """The output layer trains as a copy of the embedding that it is tied to (peft's ``modules_to_save`` without
    ``ensure_weight_tying``)."""

    dora: str = ""
    """How weight-decomposed adapters (DoRA) run, as a framework's ``adapters.dora`` has it; empty without them."""

    @property
    def bare(self) -> "Tuning":
        """The same without adapters, and with nothing that trains."""
        return self._replace(rank=0, targets=frozenset(), whole=frozenset(), experts=ExpertAdapters(), dora="")

    def takes_experts(self, linear: bool) -> bool:
        """Whether experts are quantised, given whether they are linear layers."""
        return self.quantization is not None and (linear or self.quantises_experts or not self.quantization.linear_only)

    def trains(self, part: str) -> bool:
        """Whether ``embedding``, ``head`` or ``norms`` train whole."""
        return part in self.whole


def targets_named(text: str) -> str:
    """``q,v`` in the house's order from any of the words people use; raises ValueError for others."""
    found: set[str] = set()
    for word in text.replace(",", " ").replace("+", " ").lower().split():
        plain = word if word in LETTERS or word in GROUPS else word.removesuffix("_proj")
        if plain not in LETTERS and plain not in GROUPS:
            known = (*LETTERS, *GROUPS, *(f"{letter}_proj" for letter in _ATTENTION + _MLP))
            near = did_you_mean(word, [one for one in known if len(one) > 1])
            raise ValueError(f"{word!r} is not a choice; {near or f'choices, joined by commas: {_CHOICES}'}")
        found |= set(GROUPS.get(plain, (plain,)))
    if not found:
        raise ValueError(f"no module is named; choices: {_CHOICES}")
    return ",".join(letter for letter in LETTERS if letter in found and LATENT.get(letter) not in found)


def whole_named(text: str) -> str:
    """``embedding,head`` in the house's order, also by the names of modules; raises ValueError for others."""
    words = {_MODULES.get(word, word) for word in text.replace(",", " ").lower().split()}
    if not words or words - set(WHOLE):
        raise ValueError(f"{text!r} is not a choice; choices, joined by commas: {', '.join(WHOLE)}")
    return ",".join(part for part in WHOLE if part in words)


def targets_shown(text: str) -> str:
    """Targets by the word for all of them, where there is one: the names of ``all-linear`` are those of all families'
    modules."""
    named = set(text.split(","))
    return next(
        (word for word in ("attention", "qkv", "mlp", "mixers", "all-linear") if named == {*GROUPS[word]}), text
    )
