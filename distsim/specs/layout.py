"""How a job is spread over ranks: plain numbers, or numpy arrays over many layouts at once."""

from typing import Any, Literal, NamedTuple, Self

from distsim.arrays import Number, maximum

ZERO_STAGES = (0, 1, 2, 3)
"""What ZeRO shards: nothing, optimizer states, gradients too, parameters too."""
EVERY_LAYER = -1
"""``recompute_layers`` of layouts all of whose layers are computed again."""
SHARDS_ALL = 3
Offload = Literal["optimizer", "parameters", "activations"]
OFFLOADS: tuple[Offload, ...] = ("optimizer", "parameters", "activations")
"""What can live in host memory instead of the GPU's."""


class Layout(NamedTuple):
    """Degrees of parallelism and the shape of a micro-batch, all resolved. Each field is a number or an array."""

    tp: Number = 1
    pp: Number = 1
    cp: Number = 1
    ep: Number = 1
    etp: Number = 1
    dp: Number = 1
    vpp: Number = 1
    zero: Number = 0
    zero_group: Number = 1
    """Ranks that share one sharded copy of the model states (dp * cp, or fewer with ``--zero-group``)."""
    experts_whole: int = 0
    """1 where ranks of expert parallelism share no states of their experts (``Traffic.experts_whole``)."""
    sequence_parallel: Number = 0
    loss_parallel: Number = 1
    """1 where logits stay sharded over tp through the loss."""
    seq: Number = 1
    sample_tokens: int = 0
    """Mean length of the samples packed into a sequence; 0 where it is one."""
    micro_batch: Number = 1
    micro_batches: Number = 1
    """Micro-batches per optimizer step and data-parallel rank (gradient accumulation or pipeline)."""
    selective: Number = 0
    """1 where ``--recompute selective`` is on."""
    recompute_layers: Number = 0
    """Layers per stage that keep only their input (``--recompute full``); -1 means all."""
    recompute_group: int = 1
    """Layers that one checkpoint covers where all are recomputed: the input of the first is kept."""
    schedule: str = "1f1b"
    attention: str = "flash"
    cp_mode: str = "ring"
    """How context parallel ranks see each other's keys: ring, all_gather, or all_to_all (heads for tokens)."""

    vocab_parallel: str = ""
    """How pipeline stages share the rows of embedding and output layer (engine/jobs/vocabulary.py); empty where the
    ends of the pipeline hold them."""

    @property
    def vocab_ranks(self) -> Number:
        """Ranks that share the vocabulary: tensor parallel ones, times the stages under vocabulary parallelism."""
        return self.tp * (self.pp if self.vocab_parallel else 1)

    @property
    def model_parallel(self) -> Number:
        """Ranks that hold one copy of the model: tp * pp * cp."""
        return self.tp * self.pp * self.cp

    @property
    def gpus(self) -> Number:
        """All ranks."""
        return self.model_parallel * self.dp

    @property
    def expert_data_parallel(self) -> Number:
        """Ranks that hold the same experts: dp*cp*tp / (ep*etp)."""
        return self.dp * self.cp * self.tp // (self.ep * self.etp)

    def sharers(self, experts: bool) -> Number:
        """The most ranks that hold the same weights: experts that tensor parallelism leaves whole have more than dense
        ones, unless expert parallelism spreads them."""
        dense = self.dp * self.cp
        return maximum(dense, self.expert_data_parallel) if experts else dense

    def shards(self, experts: bool) -> Number:
        """Whether ranks share states of anything where ZeRO does: where none share dense ones, some may share those of
        ``experts``."""
        return (self.zero_group > 1) | (experts & (self.zero_group * self.tp // (self.ep * self.etp) > 1))

    @property
    def global_batch(self) -> Number:
        """Sequences of one optimizer step over all ranks."""
        return self.micro_batch * self.micro_batches * self.dp

    @property
    def step_tokens(self) -> Number:
        """Tokens of one optimizer step over all ranks."""
        return self.seq * self.global_batch

    @property
    def together(self) -> Number:
        """Tokens of a sequence that attend to each other."""
        return self.sample_tokens or self.seq

    @property
    def tokens(self) -> Number:
        """Tokens of one micro-batch on one rank, before sequence parallelism."""
        return self.micro_batch * self.seq / self.cp

    @property
    def sequence_shard(self) -> Number:
        """What divides tensors between tensor-parallel regions: tp under sequence parallelism, else 1."""
        return 1 + self.sequence_parallel * (self.tp - 1)

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return self._replace(**changes)
