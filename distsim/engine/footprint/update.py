"""What the optimizer's update takes beside states and gradients, while it runs."""

from __future__ import annotations

from collections.abc import Iterable

from distsim.arrays import Number, maximum, minimum, product, where
from distsim.engine.footprint.host_share import by_sub_groups, host_updates, sub_group_elements
from distsim.engine.footprint.low_rank import projects
from distsim.engine.footprint.orthogonalised import orthogonalising_bytes
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.layers.ledger import Parameter, parameters_of
from distsim.specs.optimizer import Optimizer
from distsim.specs.precision import Precision
from distsim.units import FP32_BYTES


def update_bytes(setup: Setup, stage: Stage, gradients: Number) -> Number:
    """The optimizer's temporaries, and wide copies that replace a rank's narrow gradients one by one."""
    if setup.optimizer.in_backward:  # nothing is left to update
        return 0
    precision, away = setup.trained_precision, "optimizer" in setup.offload
    at_once = 0 if away else setup.optimizer.step_states  # in host memory one after the other
    own, rules = own_elements(setup, stage), setup.framework.buffers
    grouped = where(setup.layout.zero >= 3, int(rules.step_elements > 0), 0)
    updated = where(grouped, minimum(own, rules.step_elements), own)
    temporary: Number = at_once * precision.state_bytes * updated
    if away and by_sub_groups(setup):  # torch's AdamW, a denominator at a time, of what stays
        stays = own * (1 - host_updates(setup, stage.held()))
        temporary = temporary + FP32_BYTES * minimum(stays, sub_group_elements(setup))
    if setup.optimizer.step_tensors:
        temporary = temporary + _of_one_parameter(setup, stage, precision)
    if setup.optimizer.newton_schulz:
        temporary = temporary + orthogonalising_bytes(setup, stage)
    wider = precision.master_bytes - precision.gradient_bytes
    narrow = int(rules.flat_gradients and precision.gradient_bytes <= precision.parameter_bytes)  # else joined before
    joins = where((setup.layout.zero == 1) | (setup.layout.zero == 2), narrow, 0) + grouped
    if rules.master_gradients and wider > 0:
        wide = gradients / precision.gradient_bytes * wider + _last_gradient(setup, stage)
        temporary = temporary + product(1 - joins, wide)
    if rules.shard_gradients and wider > 0 and not away:
        temporary = temporary + own * precision.master_bytes
    if (rules.flat_gradients or rules.step_elements) and not away:
        joined = precision.gradient_bytes + (precision.master_bytes if wider > 0 else 0)
        temporary = temporary + product(joins, updated * joined)
    if rules.joins_whole and wider > 0 and not away:
        temporary = temporary + where(setup.layout.zero == 0, 2 * precision.master_bytes * own, 0)
    return temporary


def _last_gradient(setup: Setup, stage: Stage) -> Number:
    """The narrow gradient that is still there when the last wide copy is made: of the stage's last matrix."""
    ends = [stage.layers[stage.order[-1]][0]] if stage.layers else []
    if stage.head is not None and not setup.model.tied_embeddings:
        ends.append(stage.head)
    matrices = [p for end in ends for p in parameters_of(end.operations) if p.kind == "matrix" and p.trains]
    return _of_one(setup, matrices[-1]) * setup.trained_precision.gradient_bytes if matrices else 0


def tensors_of(setup: Setup, parameter: Parameter) -> Number:
    """Tensors that a parameter is; experts may be one, all of them."""
    return 1 if parameter.group == "expert" and setup.kernels.expert_modules == "one" else parameter.copies


def _of_one(setup: Setup, parameter: Parameter) -> Number:
    """Elements of one tensor of a parameter, or of a rank's shard of it."""
    return parameter.elements / tensors_of(setup, parameter) / _sharers(setup)[parameter.group]


def _sharers(setup: Setup) -> dict[str, Number]:
    """Ranks that share the states of what is dense and of experts."""
    layout = setup.layout
    return {group: where(layout.zero >= 1, sharding_group(layout, group), 1) for group in ("dense", "expert")}


def own_elements(setup: Setup, stage: Stage) -> Number:
    """Trained elements of which a rank has the master copy."""
    ranks = _sharers(setup)
    return sum(p.elements * times / ranks[p.group] for p, times in stage.held() if p.trains)


def _of_one_parameter(setup: Setup, stage: Stage, precision: Precision) -> Number:
    """What an update of one parameter after the other holds beside the largest of them, or a rank's shard of it."""
    updated = (p for p, _ in stage.parameters if p.trains and _one_by_one(setup, p))
    largest = maximum(0, *(_of_one(setup, p) for p in updated))
    return _beside_element(setup.optimizer, precision) * largest


def _one_by_one(setup: Setup, parameter: Parameter) -> bool:
    """Whether elementary operations update a parameter: of bitsandbytes's optimizers those that are projected alone."""
    optimizer = setup.optimizer
    return not optimizer.library or not optimizer.projection or projects(setup, parameter)


def _beside_element(optimizer: Optimizer, precision: Precision) -> float:
    """What an update of one parameter holds beside each of its elements."""
    if not optimizer.widens:
        return optimizer.step_tensors * precision.state_bytes
    copies = 2 * ((precision.master_bytes or precision.parameter_bytes) < FP32_BYTES)  # of parameter and gradient
    if optimizer.in_backward and optimizer.step_tensors:  # which are gone when lomo_optim copies the parameter
        copies //= 2
    return (optimizer.step_tensors + copies) * FP32_BYTES


def in_backward_bytes(setup: Setup, parameters: Iterable[Parameter]) -> Number:
    """What an update inside of backward holds beside the gradient that backward has just made, of the largest of some
    parameters; nothing where all are updated after backward. A gradient goes when its copy in fp32 is there (lomo_optim
    0.1.1)."""
    optimizer, precision = setup.optimizer, setup.trained_precision
    if not optimizer.in_backward:
        return 0
    gone = precision.gradient_bytes if optimizer.widens and precision.gradient_bytes < FP32_BYTES else 0
    updated = (one for one in parameters if one.trains and _one_by_one(setup, one))
    largest = maximum(0, *(_of_one(setup, one) for one in updated))
    return (_beside_element(optimizer, precision) - gone) * largest
