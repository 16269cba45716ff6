"""``distsim calibrate``: profiles fitted to your own measurements."""

from __future__ import annotations

from typing import Annotated

import typer


def calibrate(
    nccl_tests: Annotated[
        str | None, typer.Option("--nccl-tests", help="output of nccl-tests, text or JSON", show_default=False)
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="accelerator it ran on", show_default=False)] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", help="[default: its usual node]", show_default=False)
    ] = None,
    internode_gbps_per_gpu: Annotated[
        float | None, typer.Option("--internode-gbps-per-gpu", help="network rate per GPU in Gb/s", show_default=False)
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option("--collective", help="where the file does not name it, e.g. all_reduce", show_default=False),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="where the file does not list them", show_default=False)
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", help="TOML to write: a network profile for --profile", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON to stdout")] = False,
) -> None:
    """Fit a network profile to the output of nccl-tests and write it for ``--profile`` of comm and step.

    Example: distsim calibrate --nccl-tests all_reduce.log --gpu h100-sxm --output mine.toml
    """
    from distsim.cli.network_files import calibrate_nccl_tests
    from distsim.errors import DistsimError

    if nccl_tests is None:
        raise DistsimError("nothing to calibrate with", "give --nccl-tests FILE and --gpu NAME")
    if gpu is None:
        raise DistsimError("--nccl-tests needs the accelerator it ran on", "add e.g. --gpu h100-sxm")
    calibrate_nccl_tests(nccl_tests, gpu, gpus_per_node, internode_gbps_per_gpu, collective, ranks, output, json)
