"""What a network states of itself, field by field: a decoder or an encoder, dense or mixture-of-experts."""

from typing import Literal

from pydantic import Field

from distsim.specs.output import Output
from distsim.specs.parts import (
    BlockIndexer,
    CompressedAttention,
    DeltaNet,
    Disentangled,
    Experts,
    Frames,
    GlobalAttention,
    LatentAttention,
    LayerInputs,
    LayerSizes,
    Lightning,
    LinearRecurrence,
    Mamba,
    NGrams,
    Patches,
    SharedKeys,
    ShortConvolution,
    Streams,
    TextTower,
    Tower,
    Windowed,
)
from distsim.specs.quantity import Count, Depth, Fraction, MaybeCount, Natural, QueryKeyNorm, Share

Norm = Literal["layernorm", "rmsnorm"]
Positions = Literal["rotary", "learned", "relative", "sinusoidal", "alibi", "none"]


MIXERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
RECURRENT = ("mamba", "delta", "convolution", "lightning", "recurrence")
"""Fields of mixers that may replace attention."""


class Shape:
    """A transformer with one kind of layer: a decoder, or an encoder if ``causal`` is off. Counts are plain numbers;
    widths are in elements."""

    aliases: tuple[str, ...] = ()
    family: str
    """Architecture family as Hugging Face's ``model_type`` names it, e.g. ``llama``, ``gpt2``, ``mixtral``."""
    layers: Depth
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    value_dim: MaybeCount = None
    """Width of a value head if it differs from ``head_dim`` (MiMo V2 Flash)."""
    ffn: Count
    """Inner width of a dense MLP (of the dense layers, where experts are used elsewhere)."""
    vocab: Natural
    """Rows of the word embedding; 0 for models that read images."""
    context: Count
    """Tokens per sequence that the model was built for: the default of ``--seq``."""
    gated: bool
    """The MLP has three matrices (gate, up, down) instead of two."""
    activation: str
    """The MLP's activation function as Hugging Face names it: silu, gelu, gelu_new, gelu_pytorch_tanh, relu, …"""
    norm: Norm
    norm_affine: bool = True
    """Norms have learned weights (not so in OLMo 1)."""
    norm_bias: bool | None = None
    """Norms have biases; by default layernorms do and rmsnorms do not (MPT's layernorms have none)."""
    norms_per_layer: int = Field(default=2, ge=1, le=4)
    """Norms over the hidden width in a layer: 1 (one for parallel attention and MLP), 2, or 4 (Gemma 2 and 3)."""
    norm_gate_rank: MaybeCount = None
    """Rank of an MLP that scales the output of its norm: before attention, and before experts (A.X K2)."""
    residual_fp32: bool = False
    """The residual stream is fp32 regardless of the other formats (Mamba)."""
    narrow_embeddings: bool = False
    """Embeddings are stored in 16 bits under autocast, and the residual stream is as narrow then (nanochat)."""
    value_embedding_every: Natural = 0
    """In every so-many-th layer, counted back from the last, values gain a vector of a table of its own, which each
    token looks up and a gate for each head scales (nanochat of 2026: every second); 0: in none."""
    residual_streams: Count = 1
    """Residual streams between layers; each sublayer reads a weighted sum of them and writes to all (Hy4)."""
    stream_mixing: Natural = 0
    """Sinkhorn iterations that make the matrix doubly stochastic with which each sublayer mixes those streams
    (DeepSeek-V4's hyper-connections); 0: streams are not mixed."""
    stream_rank: MaybeCount = None
    """Rank of the product of all normed streams that gates, element by element, what a sublayer reads of them; those
    norms stand for the sublayers' own (Qwen4-Exp). None: one weight for each stream."""
    streams_averaged: bool = False
    """Behind the last layer those streams are averaged, not weighed (GLM-5.3)."""
    parallel_blocks: bool = False
    """Attention and MLP read the same residual (GPT-J, GPT-NeoX, Falcon, Phi)."""
    final_norm: bool = True
    final_norm_bias: bool = True
    """The last norm has a bias where the others have one (not so in ESM C)."""
    embedding_norm: bool | Literal["unit"] = False
    """A norm after the embedding (BLOOM, BERT), or one to ``unit`` length without weights (Muse Glimmer)."""
    qk_norm: QueryKeyNorm = "none"
    """Norm on queries and keys: per ``head`` (``head_dim`` weights; Qwen3) or to ``unit`` length without weights
    (Llama 4); of ``each`` head with weights of its own (Cohere, StableLM); or ``full``, over all heads at once
    (OLMoE)."""
    qk_norm_bias: bool = False
    """The norms on queries and keys are layernorms with biases (Phi-1/2 and Persimmon where they have such norms)."""
    value_norm: bool = False
    """Norm on values, per head and without weights (Gemma 4)."""
    clips_projections: bool = False
    """Queries, keys and values are clipped to a range, behind their norms where they have any (OLMo, DBRX)."""
    attention_gate: bool | Literal["head", "apart"] = False
    """Attention's output is scaled by a sigmoid of one more projection, element by element (Qwen3-Next), which is no
    part of the queries' and has no bias where it is ``apart`` (AFMoE), or each ``head`` by one number (Ling 3, Step
    3.5)."""
    gate_function: Literal["sigmoid", "softplus"] = "sigmoid"
    """What makes the gate of that projection's output; a softplus is in fp32 (Laguna)."""
    head_output_norm: bool = False
    """Each head's output is scaled to unit length before the gate (Muse Spark)."""
    gated_residual: bool = False
    """What a sublayer adds and what it adds to are scaled by learned vectors, and the norm behind attention has no
    weights (Muse Spark)."""
    layer_scale: bool = False
    """Learned scales on what attention and MLP add (DINOv2)."""
    inner_norms: bool = False
    """The inputs of the output projections of attention and MLP are normed (BitNet)."""
    causal: bool = True
    """A token sees only those before it; encoders (BERT) see all."""
    encoder_layers: Natural = 0
    """That many of the first layers form an encoder, to whose output each later one attends (T5); 0: one stack."""
    decoder_context: MaybeCount = None
    """Tokens per sequence that the layers after an encoder read; ``--seq`` is what the encoder reads."""
    token_types: Natural = 0
    """Rows of the segment table that is added to the embedding (BERT 2, RoBERTa 1)."""
    positions: Positions
    position_rows: Natural = 0
    """Rows of a learned position table (OPT has two more than its context), or of a table of biases to attention scores
    by distance (T5's buckets), one per head and stack."""
    encoder_position_rows: Natural = 0
    """Rows of the encoder's own learned position table; ``position_rows`` is then the decoder's (BART, Whisper)."""
    fixed_positions: Literal["none", "encoder", "both"] = "none"
    """Sinusoidal position tables that are stored but not trained: the encoder's (Whisper) or both (Marian)."""
    disentangled: Disentangled | None = None
    """Attention scores also compare words with distances (DeBERTa)."""
    distance_buckets: Natural = 0
    """Rows of a table of biases by distance, one column per head, that all layers add to their scores (MPNet)."""
    rotary_fraction: Share = 1.0
    """Share of a head's width that is rotated (GPT-NeoX 0.25, Phi-2 0.4)."""
    rotary_scaled: bool = False
    """Rotary positions also scale queries and keys (YaRN with a factor other than 1: GPT-OSS, not DeepSeek)."""
    patches: Patches | None = None
    """Images are read, not tokens (ViT)."""
    text: TextTower | None = None
    """The last layers are a second stack, which reads the text that belongs to an image (CLIP)."""
    tower: Tower | None = None
    """Layers over images, whose tokens stand among those of the text (LLaVA); counted where a job has images."""
    frames: Frames | None = None
    """The encoder reads audio, not tokens (Whisper)."""
    qkv_bias: bool = False
    key_bias: bool = True
    """Keys have a bias if queries and values have one (not so in Whisper)."""
    attention_output_bias: bool = False
    mlp_bias: bool = False
    mlp_output_bias: bool = False
    """The MLP's last matrix has a bias, whether or not the others have one (GTE)."""
    head_bias: bool = False
    """The output layer has a bias (Phi, GPT-J, BERT)."""
    output: Output = Output()
    """What comes between the last layer and the loss."""
    tied_embeddings: bool
    """Input embedding and output layer share one matrix."""
    extra_words: Natural = 0
    """Rows of the input embedding for words that the output layer does not predict (Molmo 2)."""
    embedding_width: MaybeCount = None
    """Width of the word embedding when it is projected to ``hidden`` (OPT-350M, ELECTRA); None means ``hidden``."""
    window: MaybeCount = None
    """Sliding attention window in tokens; None means full attention everywhere."""
    window_pattern: tuple[bool, ...] = ()
    """Which layers use the window, repeated over the layers; empty means all of them when ``window`` is set."""
    window_chunks: bool = False
    """The window is a chunk of the sequence, in which tokens see those before them, and none of other chunks (Llama
    4)."""
    windowed: Windowed | None = None
    """How layers with a window differ from those without (MiMo V2 Flash, Step 3.5)."""
    attention_softcap: bool = False
    """Attention scores are soft-capped (Gemma 2), which flash kernels of that time could not do."""
    logit_softcap: bool = False
    """Logits are soft-capped; they always are if attention scores are (``caps_logits``)."""
    attention_sinks: bool = False
    """One learned sink logit per head (GPT-OSS)."""
    attention_dropout: Fraction = 0.0
    hidden_dropout: Fraction = 0.0
    embedding_dropout: Fraction = 0.0
    mlp_dropout: Fraction = 0.0
    """Dropout on the MLP's inner width (T5)."""
    global_attention: GlobalAttention | None = None
    shared_keys: SharedKeys | None = None
    layer_inputs: LayerInputs | None = None
    sizes: LayerSizes | None = None
    ngrams: NGrams | None = None
    streams: Streams | None = None
    experts: Experts | None = None
    latent_attention: LatentAttention | None = None
    compressed_attention: CompressedAttention | None = None
    block_indexer: BlockIndexer | None = None
    mamba: Mamba | None = None
    delta: DeltaNet | None = None
    convolution: ShortConvolution | None = None
    lightning: Lightning | None = None
    recurrence: LinearRecurrence | None = None
    recurrent: tuple[bool, ...] = ()
    """Which layers (the pattern repeats) have the mixer above instead of attention, before their MLP."""
    mixer_beside: bool = False
    """Layers named by ``recurrent`` have attention too: both read one input, their outputs are added (Falcon-H1)."""
    pattern: str = ""
    """Layers of one mixer each, in Nemotron-H's letters: M Mamba-2, * attention, E experts, - MLP. Empty: attention and
    MLP in every layer."""
    mtp_layers: Natural = 0
    """Multi-token prediction modules after the last layer (DeepSeek-V3), which train only if a job says so."""
    mtp_pattern: str = ""
    """Layers of one such module in the letters of ``pattern``; empty: one layer like the last one."""
    mtp_repeated: bool = False
    """All modules are one: the same weights are used for every further token (Nemotron 3 Super)."""
    mtp_trained: Natural = 0
    """How many such modules the job trains (``--mtp``)."""
