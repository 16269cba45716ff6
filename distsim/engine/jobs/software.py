"""The framework of a job: the one that it names, or else what its accelerators run."""

from __future__ import annotations

from distsim import catalog
from distsim.engine.jobs.lacking import own_software
from distsim.preset_kinds import DEFAULT_GPU
from distsim.specs.framework import Framework
from distsim.specs.job import Job


def framework_of(job: Job) -> Framework:
    """What a job names, or else the software of its accelerators' own compiler, or else distsim's default."""
    own = None if job.names_framework else own_software(catalog.load("gpus", _chip_of(job)))
    framework: Framework = catalog.load("frameworks", own or job.framework)
    return framework


def _chip_of(job: Job) -> str:
    """The accelerator that a job or its cluster names, or the usual one."""
    if job.gpu or not job.cluster:
        return job.gpu or DEFAULT_GPU
    return str(catalog.load("clusters", job.cluster).gpu)
