"""What an optimizer keeps for each parameter."""

from typing import Literal

from distsim.specs.base import Sourced, Spec
from distsim.specs.precision import Precision
from distsim.specs.quantity import Amount, Factor, MaybePositive, Natural


class State(Spec):
    """One state: as large as the parameter, one value per row and per column of a matrix (``factored``), one counter
    per parameter tensor (``scalar``), whose size is the framework's, the optimizer's rank times a matrix's longer side
    (``projected``), or what projects gradients to that (``projection``), rank times the shorter side."""

    name: str
    shape: Literal["full", "factored", "scalar", "projected", "projection"] = "full"
    bytes_per_element: MaybePositive = None
    """None means the precision recipe's ``state_bytes``."""
    of: Literal["all", "matrices", "vectors"] = "all"
    """``matrices`` are the two-dimensional weights inside the layers; ``vectors`` all others (embeddings, norms)."""

    def bytes_under(self, precision: Precision) -> float:
        """Bytes of an element under a recipe."""
        return precision.state_bytes if self.bytes_per_element is None else self.bytes_per_element


class Optimizer(Sourced):
    """The states an optimizer keeps beside the precision recipe's master copy, which all use (8-bit ones too)."""

    aliases: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    """Those of its aliases that name a fused update, whatever a framework runs under its other names."""
    update: str = ""
    """What it computes, where a framework may run an implementation of its own (``optimizers`` of its preset); blank:
    it is one implementation, which all run."""
    library: str = ""
    """The package that it is from, where that matters to a framework (``fp32_embedding_states``)."""
    one_bit: bool = False
    """Whether compression of gradients to one bit is made for its update."""
    states: tuple[State, ...] = ()
    passes: Factor = 1.0
    """Memory traffic of the update over that of a fused one."""
    unit_cycles: Amount = 0.0
    """Clock cycles of one of a GPU's units for each element, where an update computes longer than it moves; at the
    share of the best rates that updates reach, as their traffic is."""
    accesses: Amount = 0.0
    """How often an update made of elementary operations reads or writes an element; 0 where ``passes`` tells it."""
    widens: bool = False
    """Narrow parameters and their gradients are copied to fp32 for the update, one parameter at a time."""
    newton_schulz: Natural = 0
    """Rounds of the iteration that orthogonalises the update of each matrix (Muon); 0 where there is none."""
    flat_matrices: bool = False
    """Orthogonalises tensors of two dimensions alone: experts in one tensor are updated as vectors are."""
    projection: Literal["", "svd", "random"] = ""
    """What the gradients of a layer's products are projected by, so that states are of few rows or columns: leading
    singular vectors of the gradient (GaLore), or random numbers (APOLLO); blank where they are not."""
    rank: Natural = 0
    """Rows or columns that are left of a projected gradient."""
    projection_steps: Natural = 0
    """Steps after which projections are made anew."""
    projected_accesses: Amount = 0.0
    """How often an element of a projected gradient's matrix is read or written besides its products' operands."""
    in_backward: bool = False
    """Each parameter is updated as soon as backward has made its gradient, which then goes."""
    step_states: Amount = 0.0
    """Further tensors as large as one state that live during the step: 1 where all parameters are updated at once by
    elementary operations (torch's ``foreach``), 0 where the update is fused."""
    step_tensors: Amount = 0.0
    """Further tensors as large as one state of one parameter, where parameters are updated one by one."""

    @property
    def foreach(self) -> bool:
        """Whether elementary operations update all parameters at once."""
        return self.step_states > 0
