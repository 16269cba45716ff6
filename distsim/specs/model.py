"""What a network is: the shape of a decoder or an encoder, dense or mixture-of-experts, as its authors state it."""

from typing import Literal, Self

from pydantic import Field, model_validator

from distsim.specs.base import Sourced, Spec
from distsim.specs.disentangled import Disentangled
from distsim.specs.inputs import Frames, Patches, TextTower
from distsim.specs.latent import LatentAttention
from distsim.specs.mixers import DeltaNet, Mamba, ShortConvolution
from distsim.specs.output import Output

Norm = Literal["layernorm", "rmsnorm"]
Positions = Literal["rotary", "learned", "relative", "sinusoidal", "alibi", "none"]


class Experts(Spec):
    """The mixture-of-experts part of a model's MLPs."""

    count: int = Field(ge=1)
    """Routed experts per MoE layer."""
    per_token: int = Field(ge=1)
    """Experts that each token is sent to (top-k)."""
    ffn: int = Field(ge=1)
    """Inner width of one routed expert."""
    latent: int | None = Field(default=None, ge=1)
    """Width to which tokens are projected before they go to routed experts (Nemotron 3 Super); None means none."""
    shared: int = Field(default=0, ge=0)
    """Shared experts, which every token passes; all of them together have width ``shared_ffn``."""
    shared_ffn: int = Field(default=0, ge=0)
    """Inner width of the shared experts taken together."""
    shared_gate: bool = False
    """The shared experts' output is scaled by a learned sigmoid gate (Qwen2-MoE)."""
    router_bias: bool = False
    """The router is a linear layer with bias (GPT-OSS)."""
    bias: bool = False
    """The experts' linear layers have biases (GPT-OSS)."""
    clamp: bool = False
    """What their activation reads is clamped (GPT-OSS)."""
    score_bias: bool = False
    """One stored correction per expert that balances the router without a loss (ERNIE 4.5 counts it as a parameter)."""
    dense_layers: tuple[int, ...] = ()
    """Indices of layers whose MLP is dense, with the model's own ``ffn``."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.per_token > self.count:
            raise ValueError(f"per_token {self.per_token} is more than the {self.count} experts there are")
        if (self.shared > 0) != (self.shared_ffn > 0):
            raise ValueError(
                f"shared {self.shared} and shared_ffn {self.shared_ffn} must be both zero or both positive"
            )
        return self


MIXERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
RECURRENT = ("mamba", "delta", "convolution")
"""Fields of what may stand in attention's place."""


class Model(Sourced):
    """A transformer of one kind of layers: a decoder, or an encoder where ``causal`` is off. Counts are plain numbers;
    widths are in elements."""

    aliases: tuple[str, ...] = ()
    family: str
    """Architecture family as Hugging Face's ``model_type`` names it, e.g. ``llama``, ``gpt2``, ``mixtral``."""
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    ffn: int = Field(ge=1)
    """Inner width of a dense MLP (of the dense layers, where experts are used elsewhere)."""
    vocab: int = Field(ge=0)
    """Rows of the word embedding; 0 where images are read."""
    context: int = Field(ge=1)
    """Tokens per sequence that the model was made for: the default of ``--seq``."""
    gated: bool
    """The MLP has three matrices (gate, up, down) instead of two."""
    activation: str
    """The MLP's activation function as Hugging Face names it: silu, gelu, gelu_new, gelu_pytorch_tanh, relu, …"""
    norm: Norm
    norm_affine: bool = True
    """Norms have learned weights (not so in OLMo 1)."""
    norm_bias: bool | None = None
    """Norms have biases; by default layernorms have and rmsnorms have not (MPT's layernorms have none)."""
    norms_per_layer: int = Field(default=2, ge=1, le=4)
    """Norms over the hidden width in a layer: 1 (one for parallel attention and MLP), 2, or 4 (Gemma 2 and 3)."""
    residual_fp32: bool = False
    """The residual stream is fp32 whatever else is (Mamba)."""
    parallel_blocks: bool = False
    """Attention and MLP read the same residual (GPT-J, GPT-NeoX, Falcon, Phi)."""
    final_norm: bool = True
    final_norm_bias: bool = True
    """The last norm has a bias where the others have one (not so in ESM C)."""
    embedding_norm: bool = False
    """A norm after the embedding (BLOOM, BERT)."""
    qk_norm: Literal["none", "head", "full"] = "none"
    """Norm on queries and keys: per head (``head_dim`` weights; Qwen3) or over all heads at once (OLMoE)."""
    qk_norm_bias: bool = False
    """The norms on queries and keys are layernorms with biases (Phi-1/2 and Persimmon where they have such norms)."""
    attention_gate: bool = False
    """Attention's output is scaled, element by element, by a sigmoid of one more projection (AFMoE)."""
    inner_norms: bool = False
    """What the output projections of attention and MLP read has a norm (BitNet)."""
    causal: bool = True
    """A token sees only those before it; encoders (BERT) see all."""
    encoder_layers: int = Field(default=0, ge=0)
    """The first so many layers are an encoder's, to whose output each later one attends (T5); 0: one stack."""
    decoder_context: int | None = Field(default=None, ge=1)
    """Tokens per sequence that the layers after an encoder read; ``--seq`` is what the encoder reads."""
    token_types: int = Field(default=0, ge=0)
    """Rows of a table of segments that is added to the embedding (BERT 2, RoBERTa 1)."""
    positions: Positions
    position_rows: int = Field(default=0, ge=0)
    """Rows of a learned position table (OPT has two more than its context), or of a table of biases to attention scores
    by distance (T5's buckets), one per head and stack."""
    encoder_position_rows: int = Field(default=0, ge=0)
    """Rows of a learned table of the encoder's own, where a decoder has ``position_rows`` (BART, Whisper)."""
    fixed_positions: Literal["none", "encoder", "both"] = "none"
    """Tables that are stored but not trained, sines and cosines: the encoder's (Whisper) or both (Marian)."""
    disentangled: Disentangled | None = None
    """Scores compare words with distances too (DeBERTa)."""
    distance_buckets: int = Field(default=0, ge=0)
    """Rows of a table of biases by distance, one column a head, that all layers add to their scores (MPNet)."""
    rotary_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of a head's width that is rotated (GPT-NeoX 0.25, Phi-2 0.4)."""
    rotary_scaled: bool = False
    """Rotation scales what it rotates, too (YaRN with a factor other than 1: GPT-OSS, not DeepSeek)."""
    patches: Patches | None = None
    """Images are read, not tokens (ViT)."""
    text: TextTower | None = None
    """The last layers are a second stack, which reads the text that goes with an image (CLIP)."""
    frames: Frames | None = None
    """The encoder reads sound, not tokens (Whisper)."""
    qkv_bias: bool = False
    key_bias: bool = True
    """Keys have a bias where queries and values have one (not so in Whisper)."""
    attention_output_bias: bool = False
    mlp_bias: bool = False
    mlp_output_bias: bool = False
    """The MLP's last matrix has a bias, whatever the others have (GTE)."""
    head_bias: bool = False
    """The output layer has a bias (Phi, GPT-J, BERT)."""
    output: Output = Output()
    """What comes between the last layer and the loss."""
    tied_embeddings: bool
    """Input embedding and output layer share one matrix."""
    extra_words: int = Field(default=0, ge=0)
    """Rows of the input embedding for words that the output layer does not tell (Molmo 2)."""
    embedding_width: int | None = Field(default=None, ge=1)
    """Width of the word embedding when it is projected to ``hidden`` (OPT-350M, ELECTRA); None means ``hidden``."""
    window: int | None = Field(default=None, ge=1)
    """Sliding attention window in tokens; None means full attention everywhere."""
    window_pattern: tuple[bool, ...] = ()
    """Which layers use the window, repeated over the layers; empty means all of them when ``window`` is set."""
    attention_softcap: bool = False
    """Attention scores are soft-capped (Gemma 2), which flash kernels of the time cannot do."""
    attention_sinks: bool = False
    """One learned sink logit per head (GPT-OSS)."""
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.0, ge=0, lt=1)
    embedding_dropout: float = Field(default=0.0, ge=0, lt=1)
    mlp_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the MLP's inner width (T5)."""
    experts: Experts | None = None
    latent_attention: LatentAttention | None = None
    mamba: Mamba | None = None
    delta: DeltaNet | None = None
    convolution: ShortConvolution | None = None
    recurrent: tuple[bool, ...] = ()
    """Which layers, repeated over all of them, have the mixer above in attention's place, before their MLP."""
    pattern: str = ""
    """Layers of one mixer each, in Nemotron-H's letters: M Mamba-2, * attention, E experts, - MLP. Empty: attention and
    MLP in every layer."""
    mtp_layers: int = Field(default=0, ge=0)
    """Multi-token-prediction layers after the last one (DeepSeek-V3), which train only where a job says so."""
    mtp_trained: int = Field(default=0, ge=0)
    """How many such layers the job trains (``--mtp``)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if self.experts and any(not 0 <= layer < self.layers for layer in self.experts.dense_layers):
            raise ValueError(f"experts.dense_layers names a layer outside 0..{self.layers - 1}")
        if self.pattern and (len(self.pattern) != self.layers or set(self.pattern) - set(MIXERS)):
            raise ValueError(f"pattern must have one of {' '.join(MIXERS)} for each of {self.layers} layers")
        mamba_alone = self.mamba is not None and not self.recurrent
        if ("M" in self.pattern) != mamba_alone or ("E" in self.pattern and self.experts is None):
            raise ValueError("pattern and mamba or experts do not go together")
        mixers = [name for name in RECURRENT if getattr(self, name) is not None]
        if not mamba_alone and (len(mixers) > 1 or bool(mixers) != any(self.recurrent)):
            raise ValueError(f"recurrent names layers, and one of {', '.join(RECURRENT)} says what they have")
        if self.recurrent and (self.pattern or self.encoder_layers or self.text or not self.causal):
            raise ValueError("recurrent goes with one stack of layers that each have an MLP and see what is before")
        if (self.positions in ("learned", "relative")) != (self.position_rows > 0):
            raise ValueError("position_rows must be given for learned and relative positions, and only for them")
        if self.tied_embeddings and not self.output.over_vocabulary:
            raise ValueError(f"tied_embeddings must be false where output.predicts is {self.output.predicts!r}")
        if not self.causal and (self.pattern or self.mtp_layers):
            raise ValueError("causal is false, which goes with neither a pattern of mixers nor mtp_layers")
        return self

    @model_validator(mode="after")
    def _two_stacks(self) -> Self:
        if (self.encoder_layers > 0) != (self.decoder_context is not None):
            raise ValueError("encoder_layers and decoder_context go together")
        if not self.encoder_layers and (self.encoder_position_rows or self.frames):
            raise ValueError("encoder_position_rows and frames need encoder_layers")
        if (self.vocab == 0) != (self.patches is not None):
            raise ValueError("vocab must be 0 where patches are read, and only there")
        if self.text and (self.patches is None or self.text.layers >= self.layers):
            raise ValueError("text goes with patches, and its layers are the last of all layers")
        if self.encoder_layers >= self.layers:
            raise ValueError(f"encoder_layers {self.encoder_layers} leave none of {self.layers} layers to a decoder")
        special = self.experts or self.latent_attention or self.pattern or self.window or self.parallel_blocks
        if self.encoder_layers and (special or self.mtp_layers or not self.causal):
            raise ValueError("encoder_layers go with plain attention and dense MLPs only")
        return self

    @property
    def activation_parameters(self) -> int:
        """Learned scalars of one activation function: xIELU has two (Apertus, arXiv:2411.13010)."""
        return 2 if self.activation == "xielu" else 0

    @property
    def norm_has_bias(self) -> bool:
        """Whether a hidden-width norm has a bias vector."""
        return self.norm_affine and (self.norm == "layernorm" if self.norm_bias is None else self.norm_bias)

    @property
    def composed_attention(self) -> bool:
        """Whether scores need what no fused kernel adds to them."""
        return self.disentangled is not None or self.distance_buckets > 0

    @property
    def text_model(self) -> Self:
        """The second stack by itself."""
        text = self.text
        assert text is not None
        shape = {name: getattr(text, name) for name in ("layers", "hidden", "heads", "ffn", "vocab", "context")}
        return self.model_copy(
            update=shape | {
                "kv_heads": text.heads, "head_dim": text.hidden // text.heads, "position_rows": text.context,
                "patches": None, "text": None, "causal": True, "embedding_norm": False,
            }
        )  # fmt: skip

    @property
    def attention_layers(self) -> int:
        """Layers that have attention."""
        if self.pattern:
            return self.pattern.count("*")
        return sum(not self.is_recurrent(layer) for layer in range(self.layers))

    @property
    def recurrent_mixer(self) -> str:
        """What layers without attention have before their MLP: mamba, delta or convolution; empty for none."""
        return next((name for name in RECURRENT if self.recurrent and getattr(self, name) is not None), "")

    def is_recurrent(self, layer: int) -> bool:
        """Whether this layer (from 0) has another mixer in attention's place, before its MLP."""
        return bool(self.recurrent) and self.recurrent[layer % len(self.recurrent)]

    def mixer(self, layer: int) -> str:
        """What a layer (from 0) of a hybrid consists of; empty where it has attention and MLP."""
        return MIXERS[self.pattern[layer]] if self.pattern else ""

    def is_decoder_layer(self, layer: int) -> bool:
        """Whether this layer (from 0) attends to an encoder's output."""
        return 0 < self.encoder_layers <= layer

    def is_text_layer(self, layer: int) -> bool:
        """Whether this layer (from 0) belongs to the second stack."""
        return self.text is not None and layer >= self.layers - self.text.layers

    def sees_all(self, layer: int) -> bool:
        """Whether a token of this layer (from 0) attends to later ones too."""
        return not self.causal or layer < self.encoder_layers

    def is_moe_layer(self, layer: int) -> bool:
        """Whether the MLP of this layer (from 0) is a mixture of experts."""
        if self.pattern:
            return self.pattern[layer] == "E"
        return self.experts is not None and layer not in self.experts.dense_layers

    def is_windowed(self, layer: int) -> bool:
        """Whether attention in this layer (from 0) sees only the sliding window."""
        if self.window is None:
            return False
        return self.window_pattern[layer % len(self.window_pattern)] if self.window_pattern else True
