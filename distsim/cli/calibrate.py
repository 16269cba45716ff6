"""``distsim calibrate``: profiles fitted to your own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from distsim.cli.signatures import option
from distsim.report import talk
from distsim.specs.flags import flag

Text = str | None
Runs = Annotated[
    Path | None, typer.Argument(help="a runs.csv of measured training runs (docs/runs.md)", show_default=False)
]
Folder = Annotated[
    Path | None, option("--folder", "with RUNS: folder to write the presets to [default: presets/timing]")
]
Alone = Annotated[bool, typer.Option("--alone", help="with RUNS: fit without the shipped runs (takes seconds)")]
NcclTests = Annotated[Text, option("--nccl-tests", "output of nccl-tests, text or JSON")]
Gpu = Annotated[Text, option("--gpu", "accelerator the test ran on, in its usual node and network")]
Cluster = Annotated[Text, option("--cluster", "cluster the test ran on, instead of --gpu")]
GpusPerNode = Annotated[
    int | None, option("--gpus-per-node", "GPUs per node [default: from the ranks in the file, else the usual node]")
]
Rate = Annotated[float | None, option("--internode-gbps-per-gpu", "network bandwidth per GPU in Gb/s")]
Links = Annotated[Text, option("--network", "link class between nodes, e.g. ib-ndr [default: usual one]")]
Collective = Annotated[Text, option("--collective", "collective, if the file does not name it, e.g. all_reduce")]
Ranks = Annotated[int | None, option("--ranks", "number of ranks, if the file does not list them")]
Output = Annotated[Text, option("--output", "network profile to write (TOML), for --profile")]
Json = Annotated[bool, typer.Option("--json", help="print JSON to stdout")]


def calibrate(
    runs: Runs = None, folder: Folder = None, alone: Alone = False, nccl_tests: NcclTests = None, gpu: Gpu = None,
    cluster: Cluster = None, gpus_per_node: GpusPerNode = None, internode_gbps_per_gpu: Rate = None,
    network: Links = None, collective: Collective = None, ranks: Ranks = None, output: Output = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Fit the step-time model to measured runs, or a network profile to the output of nccl-tests.

    RUNS are fitted together with the shipped runs, which takes minutes; --alone leaves the shipped ones out. Writes
    three presets: the fitted numbers, the residuals behind prediction intervals, and the evidence that corrects jobs
    similar to a measured one. Presets in ./presets/timing override the shipped ones.

    Example: distsim calibrate mine.csv

    Example: distsim calibrate --nccl-tests all_reduce.log --cluster dgx-h100 --output mine.toml
    """
    from distsim.cli.network_files import calibrate_nccl_tests
    from distsim.errors import DistsimError

    if runs is not None:
        if nccl_tests is not None:
            raise DistsimError("RUNS and --nccl-tests exclude each other", "calibrate from one at a time")
        _refuse_network(gpu=gpu, cluster=cluster, gpus_per_node=gpus_per_node, network=network, ranks=ranks,
                        internode_gbps_per_gpu=internode_gbps_per_gpu, collective=collective,
                        output=output)  # fmt: skip
        _runs(runs, folder or Path("presets") / "timing", alone, json)
        return
    if folder is not None or alone:
        raise DistsimError("--folder and --alone need RUNS", "give a runs.csv of measured training runs")
    if nccl_tests is None:
        raise DistsimError("nothing to calibrate with", "give a runs.csv, or --nccl-tests FILE and --gpu NAME")
    calibrate_nccl_tests(nccl_tests, gpu, gpus_per_node, internode_gbps_per_gpu, collective, ranks, output, json,
                         network, cluster)  # fmt: skip


def _refuse_network(**asked: Any) -> None:
    """Refuses options that describe a network measurement where training runs are given."""
    from distsim.errors import DistsimError

    if given := next((name for name, value in asked.items() if value is not None), None):
        says = "RUNS name their own hardware; use --folder for where to write"
        raise DistsimError(f"{flag(given)} is for --nccl-tests", says)


def _runs(runs: Path, folder: Path, alone: bool, json: bool) -> None:
    from distsim.cli.progress import shown
    from distsim.engine.fitting.runs import calibrate as fit
    from distsim.engine.validate import shipped_runs

    shipped = shipped_runs()
    mine = runs.resolve() != shipped.resolve()
    with shown("runs read") as reading, shown("cross-validation fits") as fitting:
        found = fit([shipped, runs] if mine and not alone else [runs], folder, mine, reading, fitting)
    for words in found.odd:
        talk.note(words)
    if json:
        import json as jsonlib

        scores = {name: one._asdict() for name, one in found.scores.items()}
        typer.echo(jsonlib.dumps({"schema": "distsim.calibrate/1", "runs": len(found.examples), "folder": str(folder),
                                  "scores": scores, "skipped": found.skipped,
                                  "own_skipped": found.own_skipped, "assumed": found.assumed,
                                  "own_frameworks": found.own_frameworks, "own_settings": found.own_settings,
                                  "still_to_measure": found.still_to_measure}, indent=1))  # fmt: skip
        return
    from distsim.report.calibrate import lines

    for line in lines(found, str(folder)):
        typer.echo(line)
