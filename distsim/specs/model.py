"""What a network is: the shape of a decoder or an encoder, dense or mixture-of-experts, as its authors state it."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from distsim.specs.base import Sourced
from distsim.specs.block_indexer import BlockIndexer
from distsim.specs.disentangled import Disentangled
from distsim.specs.experts import Experts
from distsim.specs.inputs import Frames, Patches, TextTower
from distsim.specs.latent import LatentAttention
from distsim.specs.layer_shapes import GlobalAttention, LayerInputs, SharedKeys, Streams
from distsim.specs.mixers import DeltaNet, Lightning, LinearRecurrence, Mamba, ShortConvolution
from distsim.specs.output import Output
from distsim.specs.windowed import Windowed

Norm = Literal["layernorm", "rmsnorm"]
Positions = Literal["rotary", "learned", "relative", "sinusoidal", "alibi", "none"]


MIXERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
RECURRENT = ("mamba", "delta", "convolution", "lightning", "recurrence")
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
    value_dim: int | None = Field(default=None, ge=1)
    """Width of a value head where it is not ``head_dim`` (MiMo V2 Flash)."""
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
    norm_gate_rank: int | None = Field(default=None, ge=1)
    """Rank of an MLP that scales the output of its norm: before attention, and before experts (A.X K2)."""
    residual_fp32: bool = False
    """The residual stream is fp32 whatever else is (Mamba)."""
    residual_streams: int = Field(default=1, ge=1)
    """Streams that go from layer to layer, of which each sublayer reads a sum and writes to all (Hy4)."""
    parallel_blocks: bool = False
    """Attention and MLP read the same residual (GPT-J, GPT-NeoX, Falcon, Phi)."""
    final_norm: bool = True
    embedding_norm: bool = False
    """A norm after the embedding (BLOOM, BERT)."""
    qk_norm: Literal["none", "head", "full"] = "none"
    """Norm on queries and keys: per head (``head_dim`` weights; Qwen3) or over all heads at once (OLMoE)."""
    qk_norm_bias: bool = False
    """The norms on queries and keys are layernorms with biases (Phi-1/2 and Persimmon where they have such norms)."""
    value_norm: bool = False
    """Norm on values, per head and without weights (Gemma 4)."""
    attention_gate: bool | Literal["head"] = False
    """Attention's output is scaled by a sigmoid of one more projection, element by element (AFMoE) or each ``head`` by
    one number (Ling 3, Step 3.5)."""
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
    head_bias: bool = False
    """The output layer has a bias (Phi, GPT-J, BERT)."""
    output: Output = Output()
    """What comes between the last layer and the loss."""
    tied_embeddings: bool
    """Input embedding and output layer share one matrix."""
    embedding_width: int | None = Field(default=None, ge=1)
    """Width of the word embedding when it is projected to ``hidden`` (OPT-350M); None means ``hidden``."""
    window: int | None = Field(default=None, ge=1)
    """Sliding attention window in tokens; None means full attention everywhere."""
    window_pattern: tuple[bool, ...] = ()
    """Which layers use the window, repeated over the layers; empty means all of them when ``window`` is set."""
    windowed: Windowed | None = None
    """What these layers have otherwise than those without it (MiMo V2 Flash, Step 3.5)."""
    attention_softcap: bool = False
    """Attention scores are soft-capped (Gemma 2), which flash kernels of the time cannot do."""
    logit_softcap: bool = False
    """Logits are soft-capped; where attention scores are, they are too."""
    attention_sinks: bool = False
    """One learned sink logit per head (GPT-OSS)."""
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.0, ge=0, lt=1)
    embedding_dropout: float = Field(default=0.0, ge=0, lt=1)
    mlp_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the MLP's inner width (T5)."""
    global_attention: GlobalAttention | None = None
    shared_keys: SharedKeys | None = None
    layer_inputs: LayerInputs | None = None
    streams: Streams | None = None
    experts: Experts | None = None
    latent_attention: LatentAttention | None = None
    block_indexer: BlockIndexer | None = None
    mamba: Mamba | None = None
    delta: DeltaNet | None = None
    convolution: ShortConvolution | None = None
    lightning: Lightning | None = None
    recurrence: LinearRecurrence | None = None
    recurrent: tuple[bool, ...] = ()
    """Which layers, repeated over all of them, have the mixer above in attention's place, before their MLP."""
    mixer_beside: bool = False
    """Layers that ``recurrent`` names attend too: both read one input, and their outputs are added (Falcon-H1)."""
    pattern: str = ""
    """Layers of one mixer each, in Nemotron-H's letters: M Mamba-2, * attention, E experts, - MLP. Empty: attention and
    MLP in every layer."""
    mtp_layers: int = Field(default=0, ge=0)
    """Multi-token-prediction layers after the last one (DeepSeek-V3), which train only where a job says so."""
    mtp_trained: int = Field(default=0, ge=0)
    """How many such layers the job trains (``--mtp``)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for heads, kv_heads in self.head_counts:
            if heads % kv_heads:
                raise ValueError(f"kv_heads {kv_heads} does not divide heads {heads}")
        local = self.windowed
        if local and self.global_attention:
            raise ValueError("windowed and global_attention say the same of layers: give one of them")
        if local and (
            self.window is None or self.pattern or bool(local.latent_attention) != bool(self.latent_attention)
        ):
            raise ValueError("windowed goes with a window, and has latent_attention where the model has")
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
        if self.mixer_beside and not self.recurrent:
            raise ValueError("mixer_beside needs recurrent, which says in which layers")
        if (self.positions in ("learned", "relative")) != (self.position_rows > 0):
            raise ValueError("position_rows must be given for learned and relative positions, and only for them")
        if self.tied_embeddings and not self.output.over_vocabulary:
            raise ValueError(f"tied_embeddings must be false where output.predicts is {self.output.predicts!r}")
        if self.residual_streams > 1 and (
            self.pattern or self.recurrent or self.parallel_blocks or self.norms_per_layer != 2
        ):
            raise ValueError("residual_streams go with layers of attention and an MLP, a norm before each")
        if not self.causal and (self.pattern or self.mtp_layers):
            raise ValueError("causal is false, which goes with neither a pattern of mixers nor mtp_layers")
        return self

    @model_validator(mode="after")
    def _unlike_layers(self) -> Self:
        if not (self.global_attention or self.shared_keys or self.layer_inputs or self.streams):
            return self
        if self.latent_attention or self.pattern or self.recurrent or self.encoder_layers or self.parallel_blocks:
            raise ValueError(
                "global_attention, shared_keys, layer_inputs, streams: only in one stack of plain attention"
            )
        kinds: dict[bool, set[bool]] = {False: set(), True: set()}
        for layer in range(self.layers):
            kinds[self.borrows_keys(layer)].add(self.is_windowed(layer))
        if not kinds[True] <= kinds[False]:
            raise ValueError("shared_keys.layers leave no layer of each kind whose keys they could read")
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
        special_attention = self.latent_attention or self.pattern or self.window or self.encoder_layers
        special = self.experts or self.latent_attention or self.pattern or self.window or self.parallel_blocks
        if self.block_indexer and (special_attention or self.heads % self.block_indexer.heads):
            raise ValueError("block_indexer goes with attention of grouped heads, which its heads divide")
        if self.encoder_layers and (special or self.mtp_layers or not self.causal):
            raise ValueError("encoder_layers go with plain attention and dense MLPs only")
        return self

    @property
    def head_counts(self) -> tuple[tuple[int, int], ...]:
        """Heads and key-value heads of layers, and of those with or without a window where they have their own."""
        own, local, other = (self.heads, self.kv_heads), self.windowed, self.global_attention
        if other:
            return own, (self.heads, other.kv_heads)
        return (own, (local.heads or own[0], local.kv_heads or own[1])) if local else (own,)

    @property
    def value_width(self) -> int:
        """Width of a value head (of latent attention that of its own field)."""
        return self.value_dim or self.head_dim

    @property
    def activation_parameters(self) -> int:
        """Learned scalars of one activation function: xIELU has two (Apertus, arXiv:2411.13010)."""
        return 2 if self.activation == "xielu" else 0

    @property
    def norm_has_bias(self) -> bool:
        """Whether a hidden-width norm has a bias vector."""
        return self.norm_affine and (self.norm == "layernorm" if self.norm_bias is None else self.norm_bias)

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
        """Layers that have attention; one that has it twice counts twice."""
        if self.pattern:
            return self.pattern.count("*")
        each = 2 if self.experts and self.experts.beside_dense else 1
        return each * sum(self.mixer_beside or not self.is_recurrent(layer) for layer in range(self.layers))

    @property
    def recurrent_mixer(self) -> str:
        """What layers without attention have before their MLP, one of RECURRENT; empty for none."""
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

    def borrows_keys(self, layer: int) -> bool:
        """Whether this layer (from 0) reads keys and values of an earlier one."""
        return self.shared_keys is not None and layer >= self.layers - self.shared_keys.layers

    def has_cutoff(self, layer: int) -> bool:
        """Whether the MLP of this layer (from 0) sets to zero what is below a cutoff."""
        return self.streams is not None and layer in self.streams.cutoff_layers

    def key_value_projections(self, layer: int) -> int:
        """Projections that make a layer's keys and values: two, one for both, or none where others' are read."""
        if self.borrows_keys(layer):
            return 0
        one = self.global_attention is not None and self.global_attention.keys_as_values
        return 1 if one and not self.is_windowed(layer) else 2

    def in_layer(self, layer: int) -> Self:
        """The model as this layer (from 0) has it: its heads, its inner width, whether it rotates."""
        own: dict[str, Any] = {}
        windowed = self.is_windowed(layer)
        if self.global_attention and not windowed:
            own |= {"head_dim": self.global_attention.head_dim, "kv_heads": self.global_attention.kv_heads}
        if self.shared_keys and self.shared_keys.ffn and self.borrows_keys(layer):
            own["ffn"] = self.shared_keys.ffn
        if (latent := self.latent_attention) and not latent.rotates(layer):
            wide = {"nope_dim": latent.width, "rope_dim": 0, "unrotated_layers": ()}
            own |= {"latent_attention": latent.model_copy(update=wide), "positions": "none"}
        elif (local := self.windowed) and windowed:
            own |= {name: one for name in type(local).model_fields if (one := getattr(local, name)) is not None}
            own |= {"head_dim": local.latent_attention.width} if local.latent_attention else {}
            own["windowed"] = None
        return self.model_copy(update=own) if own else self

    @property
    def rotary_width(self) -> float:
        """Elements of a head that are rotated; in the mean of both kinds of layers where their heads differ."""
        if self.latent_attention:
            return self.latent_attention.rope_dim
        other = self.global_attention.head_dim if self.global_attention else self.head_dim
        return (self.head_dim + other) / 2 * self.rotary_fraction

    def is_windowed(self, layer: int) -> bool:
        """Whether attention in this layer (from 0) sees only the sliding window."""
        if self.window is None:
            return False
        return self.window_pattern[layer % len(self.window_pattern)] if self.window_pattern else True
