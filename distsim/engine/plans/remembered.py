"""The best layouts of places that a program has searched lately: a plan that is asked again with other prices, limits
or failures in mind searches nothing twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from distsim import catalog
from distsim.preset_kinds import KINDS
from distsim.specs.cluster import Cluster
from distsim.specs.job import Job

Answer = TypeVar("Answer")
MOST = 512
"""Places that are remembered, the latest asked: those of about ten plans, 100 to 200 KB each."""
FILES = (".toml", ".csv")


class Remembered(Generic[Answer]):
    """Lists of answers by job and cluster, as long as presets are as they were."""

    def __init__(self) -> None:
        self.known: OrderedDict[Hashable, list[Answer]] = OrderedDict()

    def __call__(self, job: Job, cluster: Cluster, asked: Hashable, make: Callable[[], list[Answer]]) -> list[Answer]:
        """What was made for an equal job on an equal cluster where all else that was ``asked`` is equal, too; else what
        is made now. Where a job or cluster names a file, it is always made anew."""
        if names_file(job, cluster):
            return make()
        state = tuple(map(catalog.state, KINDS))
        key = state, job.model_dump_json(), frozenset(job.model_fields_set), cluster.model_dump_json(), asked
        found = self.known.pop(key, None)
        self.known[key] = answer = make() if found is None else found
        while len(self.known) > MOST:
            self.known.popitem(last=False)
        return list(answer)

    def forget(self) -> None:
        """Remember nothing, as where the code itself was changed."""
        self.known.clear()


def names_file(job: Job, cluster: Cluster) -> bool:
    """Whether something is stated by its file, which may change while presets do not."""
    stated = (cluster.gpu, *(getattr(job, name) for name in job.model_fields_set))
    return any(isinstance(one, str) and ("/" in one or one.lower().endswith(FILES)) for one in stated)
