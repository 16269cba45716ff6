"""What a training framework does with a network: its kernels, buffers, overheads and usual settings."""

from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from distsim.errors import did_you_mean
from distsim.specs.adapters import Adapters
from distsim.specs.base import Sourced
from distsim.specs.buffers import Buffers, Overhead
from distsim.specs.job import Job
from distsim.specs.kernels import Kernels
from distsim.specs.parts import ChosenLayout, Remat, Script
from distsim.specs.quantity import Natural
from distsim.specs.recipes import Recipe
from distsim.specs.support import Supports
from distsim.specs.timing import Timing
from distsim.specs.traffic import Traffic

REPLAY_WORDS = ("interleave", "pipelined_zero", "micro_batches_per_stage", "micro_batches_per_stage_until",
                "older", "older_until", "older_zero",
                "older_silent_until", "recompute_until_fits", "trains_mtp", "unsaid_micro_batch", "flash_tokens",
                "experts_like_tp", "experts_like_tp_until", "zero_of_bf16", "zero_of_bf16_until", "balanced_router",
                "whole_batch", "shards_in_node", "tiles_where_told", "trains_whole", "splits_models",
                "named_flash", "decoder_flash_year", "encoder_flash_year", "unsaid_precisions", "graphs_from_gpus",
                "loss_alone", "composed_softmax", "compiled_zero", "gathers_wide_until",
                "trainer_or_loop", "flops_counts", "flops_counts_since", "offload_since")  # fmt: skip
"""What ``usual`` may hold besides job options, ``precision_<recipe>`` and ``optimizer_<name>`` (what a row's words mean
there): how replays fill what a row leaves blank."""


class Framework(Sourced):
    """A software profile. Defaults fill options that a job leaves open."""

    aliases: tuple[str, ...] = ()
    based_on: str = ""
    """The framework preset of which it has all that it does not state itself (preset_bases.py); blank: none."""
    family: str = ""
    """Frameworks that share code, so that one without measured runs is timed like its relatives; blank: its name."""
    timed_like: str = ""
    """The framework preset whose measured runs stand for this one as long as nobody has fitted its own; blank: none.
    Shipped presets name themselves or a relative, so that a copy under another name is timed like its original."""
    compiled_like: str = ""
    """The framework preset whose runs stand for this one's where torch.compile runs; blank: its own do."""
    prior: Timing = Timing()
    """Where fitting starts from, of the numbers in which this software has a property that others lack."""
    only_on: str = ""
    """The architecture of the only accelerators that it runs on: software of one vendor's compiler."""
    defaults: dict[str, Any] = Field(default_factory=dict)
    """Job options that this framework sets when the user does not."""
    usual: dict[str, Any] = Field(default_factory=dict)
    """Job options that real runs with this framework use where their source does not say; for replaying runs."""
    usual_tuning: dict[str, Any] = Field(default_factory=dict)
    """The same for runs that train adapters: rank, targets, dropout, recomputation; ``models`` has targets by the start
    of a model's name."""
    library_tuning: dict[str, Any] = Field(default_factory=dict)
    """The same for those of them that took the library's own recipe."""
    cuts_experts: bool = False
    """Left to itself the software cuts experts over tensor parallel ranks, where jobs have them whole (``--etp``)."""
    modules: str | None = None
    """The framework preset whose modules run inside this one (torch DDP around Hugging Face): its kernels and families
    hold but for those stated here."""
    kernels: Kernels = Kernels()
    remat: dict[str, Remat] = Field(default_factory=dict)
    """Its own policies of recomputation by name, as measured runs name them."""
    scripts: dict[str, dict[str, Script]] = Field(default_factory=dict)
    """Its own scripts by accelerator (or ``any``) and model; replays fill with them what a row leaves blank."""
    layouts: dict[str, tuple[ChosenLayout, ...]] = Field(default_factory=dict)
    """Layouts that its own configurations or searches chose, by model; replays fill a row that states none with the
    first that agrees with it."""
    compiled: dict[str, Any] = Field(default_factory=dict)
    """Kernels that ``--compile`` (torch.compile) changes."""
    states: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Kernels that differ in measured runs by the state of their software (specs/timing.py), and ``closes_ties`` of
    stages (engine/jobs/placement.py); only the memory of replays uses them."""
    until: dict[float, dict[str, Any]] = Field(default_factory=dict)
    """Kernels of compiled measured runs up to a year (2024) or a date (2025.25); only the memory of replays uses
    them."""
    narrow_states: str = ""
    """The recipe whose states jobs have that multiply in 8 or 4 bits, where only products know of it (torchao)."""
    earlier: dict[float, dict[str, Any]] = Field(default_factory=dict)
    """Kernels that were otherwise in software up to a year or a date, besides those that were so for longer; only
    replays of measured runs use them."""
    earlier_families: dict[int, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """The same of single families, of this framework or of that whose modules it runs."""
    laid_end_to_end: bool = False
    """Its times are sums of operators that were timed by themselves: none hides what another waits for."""
    recipes_loss: str = ""
    """The loss of its own recipes, by its preset, where a job that names none has another; a note names it."""
    usual_loss_chunks: bool = False
    """All its recipes, which only fine-tune, compute the loss in chunks; only the memory of replays uses it."""
    usual_samples: Natural = 0
    """Tokens of the packed samples on which measured runs fine-tune; only replays use it."""
    usual_whole: dict[str, str] = Field(default_factory=dict)
    """Precision, optimizer and recomputation of measured runs which fine-tune everything, where their cells do not say;
    only replays use them."""
    families: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Kernels that differ for one model family, e.g. ``families.gemma.norm_weight_fp32``."""
    recipes: tuple[Recipe, ...] = ()
    """Kernels that its own recipes set for some models, chips and precisions; where several fit, later ones win."""
    precisions: dict[str, str] = Field(default_factory=dict)
    """The recipe that this software means by a name which means another one elsewhere."""
    optimizers: dict[str, str] = Field(default_factory=dict)
    """The preset of what this software runs under an optimizer's name, where it has an implementation of its own."""
    buffers: Buffers = Buffers()
    traffic: Traffic = Traffic()
    overhead: Overhead = Overhead()
    supports: Supports = Supports()
    adapters: Adapters = Adapters()
    alias_notes: dict[str, str] = Field(default_factory=dict)
    """What software that goes under this name has otherwise, by its own name; a note tells whoever names it."""
    compiled_decoders: str = ""
    """What a compiled decoder with flash attention takes that is not counted; a note tells it."""
    off_on_gpus: str = ""
    """What measured runs on GPUs say of its step times, where these are known to be off; a note tells it."""
    stands_for: str = ""
    """The software whose published figures only this profile replays; nobody trains with it."""
    vocab_multiple: Natural = 1
    """The vocabulary is padded to a multiple of this (times tp where ``vocab_multiple_per_tp``); 0: cut."""
    vocab_multiple_per_tp: bool = False
    unties_embeddings: bool = False
    """The output layer has a matrix of its own where the model shares the embedding's (litgpt)."""
    stores_idle_experts: bool = False
    """LongCat's experts that compute nothing have a first product (transformers)."""
    partition: Literal[
        "even", "recipe", "compute", "embedding-as-layer", "even-else-embedding", "even-else-parameters"
    ] = "even"
    """How layers are put on pipeline stages, as engine/jobs/placement.py says: ``even`` refuses what does not divide;
    the others take it, ``recipe`` as users of Megatron-core do."""
    memory_rank: Literal["first", "largest"] = "largest"
    """Whose memory runs with this framework report: rank 0's (first stage), or the largest."""
    memory_counts: Literal["allocated", "reserved", "device"] = "device"
    """What the framework's own peak-memory figure counts (measured runs are compared with it)."""
    mfu_units: Literal["recipe", "bf16"] = "recipe"
    """The rate that its MFU refers to: that of the recipe's products, or bf16 whatever they are."""
    memory_decimal: bool = False
    """Its gigabytes are 1e9 bytes."""

    @model_validator(mode="before")
    @classmethod
    def _own_family(cls, data: Any) -> Any:
        """Who has no relatives is a family of one."""
        if isinstance(data, dict) and "name" in data and not data.get("family"):
            return {**data, "family": data["name"]}
        return data

    @model_validator(mode="after")
    def _owners(self) -> Self:
        """Where each rank gets all gradients there is no ZeRO 2 but by layers."""
        if self.traffic.zero1 == "all_reduce" and self.traffic.zero2 == "step" and 2 in self.supports.zero:
            raise ValueError('traffic.zero1 = "all_reduce" leaves no ZeRO 2: state supports.zero without it')
        return self

    @field_validator("defaults", "usual")
    @classmethod
    def _known(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """A misspelt option would silently have no effect; a value that no job may have is told here."""
        words = REPLAY_WORDS if info.field_name == "usual" else ()
        for name, value in options.items():
            if name in Job.model_fields:
                Job.__pydantic_validator__.validate_assignment(Job.model_construct(), name, value)
            elif name not in words and not (words and name.startswith(("precision_", "optimizer_"))):
                near = did_you_mean(name, (*Job.model_fields, *words))
                raise ValueError(f"{name!r} is not a job option{'; ' + near if near else ''}")
        return options
