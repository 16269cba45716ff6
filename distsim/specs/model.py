"""What a network is: its stated shape, whether that holds together, and what follows from it layer by layer."""

from typing import Any, Self

from pydantic import model_validator

from distsim.specs.base import Sourced
from distsim.specs.parts import Tower
from distsim.specs.shape import MIXERS, RECURRENT, Shape


class Model(Shape, Sourced):
    """A network whose fields hold together, with what its layers are. ``beside`` names networks of the published
    model that are not counted (``vision tower``)."""

    beside: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _sized(self) -> Self:
        if (sizes := self.sizes) is None:
            return self
        if any(one and len(one) != self.layers for one in (sizes.heads, sizes.kv_heads, sizes.ffn)):
            raise ValueError(f"sizes names heads, kv_heads and ffn for each of {self.layers} layers")
        if any(not set(sizes.of(layer)) & {"kv_heads", "ffn"} for layer in range(self.layers)):
            raise ValueError("sizes leaves a layer without attention and MLP")
        special = self.experts or self.latent_attention or self.pattern or self.recurrent or self.encoder_layers
        if special or self.window or self.norms_per_layer != 2 or self.global_attention or self.streams:
            raise ValueError("sizes need one stack of attention without windows, dense MLPs, and two norms a layer")
        return self

    @model_validator(mode="after")
    def _streams_consistent(self) -> Self:
        """What residual streams, and tables that feed them, go together with."""
        if self.residual_streams > 1 and (
            self.pattern or self.parallel_blocks or self.mixer_beside or self.norms_per_layer != 2
        ):
            raise ValueError("residual_streams need layers of attention and an MLP, each behind a norm")
        if (self.stream_mixing or self.stream_rank) and self.residual_streams == 1:
            raise ValueError("stream_mixing needs several residual_streams, and so does stream_rank")
        if self.gated_residual and (self.norms_per_layer != 4 or self.residual_streams > 1):
            raise ValueError("gated_residual needs norms_per_layer 4 and one residual stream")
        if self.streams_averaged and not self.stream_mixing:
            raise ValueError("streams_averaged needs stream_mixing")
        if self.stream_rank and (self.stream_mixing or self.final_norm or self.norm_gate_rank):
            raise ValueError("stream_rank goes without stream_mixing, final_norm and norm_gate_rank")
        if (table := self.ngrams) and (
            self.stream_rank is None
            or not all(layer < self.layers and self.is_recurrent(layer) for layer in table.layers)
        ):
            raise ValueError("ngrams need stream_rank, and layers that recurrent names")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for heads, kv_heads in self.head_counts:
            if heads % kv_heads:
                raise ValueError(f"kv_heads {kv_heads} does not divide heads {heads}")
        local = self.windowed
        if local and self.global_attention:
            raise ValueError("windowed and global_attention describe the same layers: give one of them")
        if local and (
            self.window is None or self.pattern or bool(local.latent_attention) != bool(self.latent_attention)
        ):
            raise ValueError("windowed needs a window, and latent_attention exactly where the model has it")
        if self.window_chunks and self.window is None:
            raise ValueError("window_chunks needs a window, the length of a chunk")
        if self.experts and any(not 0 <= layer < self.layers for layer in self.experts.dense_layers):
            raise ValueError(f"experts.dense_layers names a layer outside 0..{self.layers - 1}")
        if (self.positions in ("learned", "relative")) != (self.position_rows > 0):
            raise ValueError("position_rows must be given for learned and relative positions, and only for them")
        if self.tied_embeddings and not self.output.over_vocabulary:
            raise ValueError(f"tied_embeddings must be false where output.predicts is {self.output.predicts!r}")
        if self.compressed_attention and (
            self.kv_heads != 1 or self.latent_attention or self.window or self.pattern or self.recurrent
            or self.encoder_layers or self.heads * self.head_dim % self.compressed_attention.output_groups
        ):  # fmt: skip
            raise ValueError("compressed_attention needs one key-value head, its own window and causal layers")
        if self.value_embedding_every and (
            self.latent_attention or self.compressed_attention or self.pattern or self.recurrent or self.encoder_layers
        ):
            raise ValueError("value_embedding_every needs one stack of plain attention")
        if not self.causal and (self.pattern or self.mtp_layers):
            raise ValueError("causal must be true with a pattern of mixers or mtp_layers")
        return self

    @model_validator(mode="after")
    def _mixers(self) -> Self:
        if self.pattern and (len(self.pattern) != self.layers or set(self.pattern) - set(MIXERS)):
            raise ValueError(f"pattern must have one of {' '.join(MIXERS)} for each of {self.layers} layers")
        mamba_alone = self.mamba is not None and not self.recurrent
        if ("M" in self.pattern) != mamba_alone or ("E" in self.pattern and self.experts is None):
            raise ValueError(
                "pattern needs mamba for its M and experts for its E, and mamba a pattern with M or recurrent"
            )
        mixers = [name for name in RECURRENT if getattr(self, name) is not None]
        if not mamba_alone and (len(mixers) > 1 or bool(mixers) != any(self.recurrent)):
            raise ValueError(f"recurrent names layers, and exactly one of {', '.join(RECURRENT)} describes them")
        if self.recurrent and (self.pattern or self.encoder_layers or self.text or not self.causal):
            raise ValueError("recurrent needs one causal stack of layers that each have an MLP")
        if self.mixer_beside and not self.recurrent:
            raise ValueError("mixer_beside needs recurrent, which names the layers")
        if (set(self.mtp_pattern) - set(self.pattern)) or (
            self.pattern and bool(self.mtp_layers) != bool(self.mtp_pattern)
        ):
            raise ValueError("a hybrid needs mtp_layers and mtp_pattern together, with letters from pattern")
        return self

    @model_validator(mode="after")
    def _unlike_layers(self) -> Self:
        if not (self.global_attention or self.shared_keys or self.layer_inputs or self.streams):
            return self
        if self.latent_attention or self.pattern or self.recurrent or self.encoder_layers or self.parallel_blocks:
            raise ValueError("global_attention, shared_keys, layer_inputs, streams need one stack of plain attention")
        kinds: dict[bool, set[bool]] = {False: set(), True: set()}
        for layer in range(self.layers):
            kinds[self.borrows_keys(layer)].add(self.is_windowed(layer))
        if not kinds[True] <= kinds[False]:
            raise ValueError("shared_keys.layers leaves no earlier layer of each kind to read keys from")
        return self

    @model_validator(mode="after")
    def _two_stacks(self) -> Self:
        if (self.encoder_layers > 0) != (self.decoder_context is not None):
            raise ValueError("encoder_layers and decoder_context must be given together")
        if not self.encoder_layers and (self.encoder_position_rows or self.frames):
            raise ValueError("encoder_position_rows and frames need encoder_layers")
        if (self.vocab == 0) != (self.patches is not None):
            raise ValueError("vocab must be 0 with patches, and only then")
        if self.text and (self.patches is None or self.text.layers >= self.layers):
            raise ValueError("text needs patches, and fewer layers than the model, whose last ones they are")
        if self.encoder_layers >= self.layers:
            raise ValueError(f"encoder_layers {self.encoder_layers} leave none of {self.layers} layers for a decoder")
        special_attention = self.latent_attention or self.pattern or self.window or self.encoder_layers
        special = self.latent_attention or self.pattern or self.window or self.parallel_blocks
        if (index := self.block_indexer) and (special_attention or (not index.pooled and self.heads % index.heads)):
            raise ValueError("block_indexer needs grouped-query attention, and heads that divide the model's")
        if self.encoder_layers and (special or self.mtp_layers or not self.causal):
            raise ValueError("encoder_layers need plain attention, and an MLP or experts in each layer")
        return self

    @property
    def shown_tower(self) -> Tower | None:
        """The vision tower, where the job has images for it."""
        return self.tower if self.tower is not None and self.tower.images else None

    @property
    def head_counts(self) -> tuple[tuple[int, int], ...]:
        """Heads and key-value heads of layers, and of those that have their own."""
        own, local, other = (self.heads, self.kv_heads), self.windowed, self.global_attention
        if self.sizes:
            each = (self.in_layer(layer) for layer in range(self.layers) if self.mixer(layer) != "mlp")
            return tuple(dict.fromkeys((one.heads, one.kv_heads) for one in each))
        if other:
            return own, (self.heads, other.kv_heads)
        return (own, (local.heads or own[0], local.kv_heads or own[1])) if local else (own,)

    @property
    def value_width(self) -> int:
        """Width of a value head (of latent attention that of its own field)."""
        return self.value_dim or self.head_dim

    @property
    def caps_logits(self) -> bool:
        """Whether logits are soft-capped, by themselves or as those are whose attention scores are (Gemma 2)."""
        return self.logit_softcap or self.attention_softcap

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
        """Layers that have attention; one that has it twice counts twice."""
        if self.pattern:
            return self.pattern.count("*")
        each = 2 if self.experts and self.experts.beside_dense else 1
        if self.sizes:
            return sum(self.mixer(layer) != "mlp" for layer in range(self.layers))
        if not self.recurrent:
            return each * self.layers
        return each * sum(self.mixer_beside or not self.is_recurrent(layer) for layer in range(self.layers))

    @property
    def recurrent_mixer(self) -> str:
        """What layers without attention have before their MLP, one of RECURRENT; empty for none."""
        return next((name for name in RECURRENT if self.recurrent and getattr(self, name) is not None), "")

    def is_recurrent(self, layer: int) -> bool:
        """Whether this layer (from 0) has another mixer in attention's place, before its MLP."""
        return bool(self.recurrent) and self.recurrent[layer % len(self.recurrent)]

    def mixer(self, layer: int) -> str:
        """What a layer (from 0) consists of; empty where it has attention, or another mixer, and an MLP."""
        if self.sizes:
            return self.sizes.alone(layer)
        return MIXERS[self.pattern[layer]] if self.pattern else ""

    @property
    def mtp_module(self) -> tuple[int, ...]:
        """Layers (from 0) that those of one module of multi-token prediction are like."""
        if not self.mtp_pattern:
            return (self.layers - 1,)
        return tuple(self.pattern.rindex(letter) for letter in self.mtp_pattern)

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
        if (shared := self.shared_keys) is None:
            return False
        return layer % shared.every > 0 if shared.every else layer >= self.layers - (shared.layers or 0)

    def has_cutoff(self, layer: int) -> bool:
        """Whether the MLP of this layer (from 0) sets to zero what is below a cutoff."""
        return self.streams is not None and layer in self.streams.cutoff_layers

    def has_value_embedding(self, layer: int) -> bool:
        """Whether values of this layer (from 0) gain a vector of a table of its own."""
        every = self.value_embedding_every
        return every > 0 and (self.layers - 1 - layer) % every == 0

    def key_value_projections(self, layer: int) -> int:
        """Projections that make a layer's keys and values: two, one for both, or none where others' are read."""
        if self.borrows_keys(layer):
            return 0
        one = self.global_attention is not None and self.global_attention.keys_as_values
        return 1 if one and not self.is_windowed(layer) else 2

    def in_layer(self, layer: int) -> Self:
        """The model as this layer (from 0) has it: its heads, its inner width, whether it rotates."""
        own: dict[str, Any] = dict(self.sizes.of(layer)) if self.sizes else {}
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
        if self.compressed_attention:
            return self.compressed_attention.rope_dim
        other = self.global_attention.head_dim if self.global_attention else self.head_dim
        return (self.head_dim + other) / 2 * self.rotary_fraction

    def is_windowed(self, layer: int) -> bool:
        """Whether attention in this layer (from 0) sees only the sliding window."""
        if self.window is None:
            return False
        return self.window_pattern[layer % len(self.window_pattern)] if self.window_pattern else True
