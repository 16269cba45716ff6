"""Searches, plans and replays by several processes or a Dask cluster: the answer of one, also when workers die."""

from __future__ import annotations

import csv
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shell import piped

from distsim.cli.workers import MOST, cores, processes
from distsim.engine.counted import Pool, Show
from distsim.engine.layouts import chunks as search_chunks
from distsim.engine.layouts.best import Kept
from distsim.engine.layouts.bounds import Bounds, parse_bounds
from distsim.engine.layouts.chunks import Chunk, Sifted, chunks
from distsim.engine.layouts.places import places
from distsim.engine.layouts.ranking import OBJECTIVES, Objective
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import LEAST_KEPT, _walk, search
from distsim.engine.layouts.space import groups
from distsim.engine.layouts.variants import base_setup
from distsim.engine.processes import MOST_DEATHS, LocalPool
from distsim.engine.validate import shipped_runs, validate_file
from distsim.errors import DistsimError
from distsim.specs.job import Job

BOUNDS = parse_bounds({"cp": "1", "zero": "0,1,3"}, [])
REQUEST = Request(Job(model="llama-7b", gpu="h100-sxm", global_batch=32), (4, 8), BOUNDS)
ALONE: list[tuple[Request, list[Any]]] = []


def alone(request: Request) -> list[Any]:
    """The answer of one process, looked for once: most tests hold others against it."""
    known = next((found for asked, found in ALONE if asked == request), None)
    if known is None:
        known = answer(request)
        ALONE.append((request, known))
    return known


def answer(request: Request, pool: Pool | None = None, watch: Show | None = None) -> list[Any]:
    """All that a search keeps, floats with all their bits: numbers of layouts, and lists in their order."""
    limit = base_setup(request.job, 8).accelerator.capacity * (1 - request.margin)
    kept = Kept(limit, Objective(request.objective), request.within, LEAST_KEPT, 32)
    _walk(request, (32,), kept, watch, None, pool)
    used = ("best", "every", "almost", "front") if kept.feasible else ("nearest", "quickest")[bool(kept.fitting) :][:1]
    lists = [[(one[:3], one.layout) for one in getattr(kept, name).found] for name in used]
    return [kept.evaluated, kept.fitting, kept.feasible, lists]


class Backwards:
    """Chunks sifted here, the last first, and handed over as another process would hand them over."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def share(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for index in reversed(range(len(tasks))):
            yield index, pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(tasks[index])))))


@pytest.mark.parametrize(
    ("objective", "workers"), [*((one, 3) for one in OBJECTIVES), ("throughput", 1), ("throughput", 50)]
)
def test_no_cut_shows_in_the_answer(objective: str, workers: int) -> None:
    request = replace(REQUEST, objective=objective)
    assert answer(request, Backwards(workers)) == alone(request)


@pytest.mark.parametrize("more", [{"within": 1e-3}, {"margin": 0.99}, {"within": 1.0}], ids=str)
def test_no_cut_shows_in_misses(more: dict[str, float]) -> None:
    request = replace(REQUEST, gpus=(8,), **more)  # type: ignore[arg-type]
    whole = alone(request)
    assert (whole[2] < whole[1]) == ("within" in more)  # with so large a margin nothing fits
    assert answer(request, Backwards(5)) == whole and whole[3][0]


def test_chunks_hold_every_block_once() -> None:
    found = list(groups(base_setup(REQUEST.job, 16), 16, 64, Bounds()))
    kept = Kept(1.0, Objective("memory"), 1.0, 1, 1)
    for workers in (1, 2, 7):
        made = chunks(found, kept, workers)
        blocks = [(p.number, block) for chunk in made for p in chunk.pieces for block in range(p.first, p.last)]
        assert blocks == [(n, b) for n, group in enumerate(found) for b in range(len(list(places(group))))]
        assert len(made) <= workers * search_chunks.PER_WORKER


def test_ties_go_to_what_is_quicker_however_late_it_comes() -> None:
    """All layouts have as many GPUs: the fewest-gpus of a list that is full must still let quicker ones in."""
    request = replace(REQUEST, gpus=(8,))
    few, quick = answer(replace(request, objective="fewest-gpus")), alone(request)
    assert [numbers[1:] for numbers, _ in few[3][0]] == [numbers[1:] for numbers, _ in quick[3][0]]


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    local = LocalPool(2)
    yield local
    local.close()


def test_processes_give_the_same_bits_and_tell_how_far_they_are(pool: LocalPool) -> None:
    told: list[tuple[int, int]] = []
    assert answer(REQUEST, pool, lambda done, whole: told.append((done, whole))) == alone(REQUEST)
    assert [done for done, _ in told] == sorted(done for done, _ in told) and told[-1][0] == told[-1][1]


def test_a_process_that_dies_loses_nothing(pool: LocalPool) -> None:
    killed = []

    def kill_once(done: int, whole: int) -> None:
        if not killed:
            killed.append(next(iter(pool.executor._processes)))
            os.kill(killed[0], signal.SIGKILL)

    assert answer(REQUEST, pool, kill_once) == alone(REQUEST) and killed


def test_processes_that_keep_dying_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_chunks, "sift", _die)
    with pytest.raises(DistsimError, match=f"died {MOST_DEATHS} times"):
        answer(REQUEST, LocalPool(1))


def _die(chunk: Chunk) -> Sifted:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Interrupted(Backwards):
    """Stopped by the user after three chunks."""

    def share(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for count, one in enumerate(super().share(function, tasks)):
            if count == 3:
                raise KeyboardInterrupt
            yield one


def test_an_interrupt_keeps_what_was_done() -> None:
    request = replace(REQUEST, gpus=(8,))
    report = search(request, pool=Interrupted(4), partly=True)
    assert report.interrupted and 0 < report.evaluated < alone(request)[0]


def test_jobs_at_the_terminal() -> None:
    words = ("--gpus", "8", "--global-batch", "32", "--recompute", "none", "--json")
    one, two = (json.loads(piped("search", "llama-7b", *words, "--jobs", jobs).stdout) for jobs in ("1", "2"))
    assert {**one, "seconds": 0} == {**two, "seconds": 0}


def test_a_plan_of_two_processes_is_that_of_one() -> None:
    words = (
        "plan llama-2-7b --tokens 100B --gpu a100,h100-sxm --gpus 16,32 --provider aws,nebius --json --tp 1,2 --pp 1"
    )
    one, two = (piped(*words.split(), "--jobs", jobs) for jobs in ("1", "2"))
    assert len(json.loads(one.stdout)["options"]) > 2
    assert (one.stdout, one.stderr, one.returncode) == (two.stdout, two.stderr, two.returncode)


def test_what_is_wrong_is_told_by_processes_too() -> None:
    words = "plan llama-2-7b --tokens 100B --gpu h100-sxm --gpus 16,32 --tp 3 --provider aws"
    one, two = (piped(*words.split(), "--jobs", jobs) for jobs in ("1", "2"))
    assert one.returncode == two.returncode == 2 and one.stderr == two.stderr
    error = pickle.loads(pickle.dumps(DistsimError("none", "try one", "or two", where="file.toml")))
    assert (error.problem, error.hints, error.where) == ("none", ("try one", "or two"), "file.toml")


@pytest.mark.parametrize("words", [
    ("--jobs", "2", "--dask", "tcp://localhost:1"), ("--jobs", "2", "--all", "every.csv"), ("--jobs", "0"),
])  # fmt: skip
def test_slips_are_exit_2(words: tuple[str, ...]) -> None:
    done = piped("search", "llama-7b", "--gpus", "8", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not done.stdout


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from distsim.engine.layouts.dask import DaskPool

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(DistsimError, match=r"pip install 'distsim\[dask\]'"):
        DaskPool("tcp://localhost:1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="the extra distsim[dask] is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local:
        yield local


def test_dask_gives_the_same_bits_though_a_worker_is_killed(cluster: Any) -> None:
    from distsim.engine.layouts.dask import DaskPool

    remote = DaskPool(cluster.scheduler_address)
    whole, killed = alone(REQUEST), []
    assert answer(REQUEST, remote) == whole

    def kill_once(done: int, all_of_them: int) -> None:
        if not killed:
            killed.append(min(worker.pid for worker in cluster.workers.values()))
            os.kill(killed[0], signal.SIGKILL)

    assert answer(REQUEST, remote, kill_once) == whole and killed
    remote.close()


def test_a_scheduler_without_distsim_can_unpack_the_work() -> None:
    cloudpickle = pytest.importorskip("cloudpickle", reason="the extra distsim[dask] is not installed")
    from distsim.engine.layouts.dask import _remote

    code = "import pickle, sys; sys.modules['distsim'] = None; print(pickle.load(sys.stdin.buffer).__name__)"
    packed = cloudpickle.dumps(_remote())
    done = subprocess.run([sys.executable, "-c", code], input=packed, capture_output=True, check=False)
    assert done.stdout.strip() == b"remote", done.stderr


def test_an_address_is_checked(cluster: Any) -> None:
    from distsim.engine.layouts.dask import DaskPool

    with pytest.raises(DistsimError, match="is not an address"):
        DaskPool("nonsense::x")


def test_no_scheduler_is_one_error(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from distsim.engine.layouts import dask as search_dask

    monkeypatch.setattr(search_dask, "PATIENCE", 0.5)
    with pytest.raises(DistsimError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        search_dask.DaskPool("tcp://127.0.0.1:9")


def test_replays_of_two_processes_are_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(shipped_runs(), encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    few = tmp_path / "few.csv"
    with open(few, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([rows[0], *rows[1::200]])
    told: list[tuple[int, int]] = []
    monkeypatch.setattr("distsim.engine.validate.PART", 3)
    shared = validate_file(few, lambda done, whole: told.append((done, whole)), Backwards(2))
    assert shared.to_dict() == validate_file(few).to_dict() and told[-1] == (16, 16)


def test_where_no_process_starts_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise OSError("no space left on /dev/shm")

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", none)
    assert list(LocalPool(2, least=2).share(abs, [-1, -2, -3])) == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(DistsimError, match=r"do not start \(no space left"):
        list(LocalPool(2).share(abs, [-1, -2, -3]))


def test_unasked_processes_that_keep_dying_leave_the_rest_here() -> None:
    """The task kills every process but the first one."""
    found = list(LocalPool(1, least=1).share(_die_elsewhere, [os.getpid()]))
    assert found == [(0, os.getpid())]


def _die_elsewhere(here: int) -> int:
    if os.getpid() != here:
        os.kill(os.getpid(), signal.SIGKILL)
    return here


def test_few_tasks_start_no_process() -> None:
    local = LocalPool(2, least=3)
    assert list(local.share(abs, [-1, -2])) == [(0, 1), (1, 2)] and local._executor is None
    with processes(None, 10) as unasked:
        assert unasked is None or (unasked.least, unasked.workers) == (10, min(cores(), MOST))
    with processes(3, 10) as asked:
        assert asked is not None and (asked.least, asked.workers) == (0, 3)


def test_a_pool_gets_searches_that_are_large_enough() -> None:
    shared: list[int] = []

    class Counting(Backwards):
        def share(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            shared.append(len(tasks))
            return super().share(function, tasks)

    request = replace(REQUEST, gpus=(8,), brief=True, top=1)
    alone = search(request)
    told = [search(request, pool=Counting(2), enough=enough) for enough in (alone.evaluated + 1, alone.evaluated)]
    assert len(shared) == 1
    for one in told:
        assert one.evaluated == alone.evaluated and one.best[0].found[:3] == alone.best[0].found[:3]


def test_an_interrupt_does_not_wait_for_what_processes_are_at() -> None:
    """A plan that Ctrl-C ended took as long as its longest part, eight seconds of a large mixture."""
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), processes(2) as local:
        assert local is not None
        at_work = local.executor.submit(time.sleep, 60)
        while not at_work.running():
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert time.monotonic() - began < 30
