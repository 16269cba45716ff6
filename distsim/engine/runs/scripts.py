"""What the scripts of a run's software set where its cells are blank: lengths, batches, and what goes with them."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.software import gpu_name
from distsim.interop.runs import Run
from distsim.interop.runs.training import fine_tunes
from distsim.preset_files import plain
from distsim.specs.framework import Framework
from distsim.specs.model import Model

SEQUENCE = "seq_len"
"""The cell that a script's ``seq`` fills."""


def states_batch(run: Run) -> bool:
    """Whether any cell says something of the batch."""
    return any(run.count(name) for name in ("micro_batch", "global_batch"))


def _timed_by_steps(run: Run) -> bool:
    """Whether the row tells a time that says nothing without its batch."""
    return any(run.positive(name) for name in ("step_time_s", "samples_per_s"))


def unsaid_micro_batch(run: Run, framework: Framework) -> int | None:
    """Sequences per replica where no cell of the batch says anything and the framework has a usual number: what it
    reports is throughput, which hardly depends on it."""
    return None if states_batch(run) or _timed_by_steps(run) else framework.usual.get("unsaid_micro_batch")


def preset_name(model: Model) -> str:
    """A model's name as framework presets list it."""
    return plain(model.name)


def scripted(run: Run, framework: Framework, model: Model) -> Run:
    """The row with what the framework's own script for its model and accelerator sets where its cells are blank; what
    scripts that fix a batch set besides, but for the length, stands for rows that say nothing of a batch."""
    own, name = framework.scripts.get(gpu_name(run), {}), preset_name(model)
    script = own.get(name) or framework.scripts.get("any", {}).get(name)
    if script is None:
        return run
    other_batch = (script.micro_batch or script.global_batch) and states_batch(run)
    sets = script.model_dump(exclude_none=True, include={"seq"} if other_batch else None)
    cells = {SEQUENCE if name == "seq" else name: str(value) for name, value in sets.items()}
    filled = {name: value for name, value in cells.items() if run.text(name) is None}
    return replace(run, cells={**run.cells, **filled})


def assumed_sequence(run: Run, setup: Setup) -> str:
    """What is taken for granted of sequences whose length neither cells nor notes tell."""
    framework = setup.framework
    scripts = scripted(run, framework, setup.model).text(SEQUENCE) or usual_length(run, framework)
    taken = f"{SEQUENCE} is blank: assumed {setup.layout.seq:,}, as in its scripts"
    return taken if scripts and run.text(SEQUENCE) is None else ""


def usual_length(run: Run, framework: Framework) -> int | None:
    """Tokens per sequence of the framework's measured runs of pre-training, where they are all alike."""
    return None if fine_tunes(run) else framework.usual.get("seq")


def assumed_experts(run: Run, setup: Setup) -> str:
    """What is taken for granted of ranks that share experts, where only scripts tell."""
    ep = scripted(run, setup.framework, setup.model).count("ep")
    return f"ep is blank: assumed {ep}, as in its scripts" if ep and run.count("ep") is None else ""


def assumed_batch(run: Run, setup: Setup) -> str:
    """What is taken for granted of a batch that no cell tells: the framework's usual one, or that of its script."""
    framework = setup.framework
    by_script = not states_batch(run) and states_batch(scripted(run, framework, setup.model))
    taken = f"batch is blank: assumed {setup.layout.micro_batch} sequences per replica"
    return taken if by_script or unsaid_micro_batch(run, framework) else ""
