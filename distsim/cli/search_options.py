"""The options that are ``distsim search``'s own, as types of its parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distsim.cli.signatures import option

Objective = Annotated[str, typer.Option("--objective", help="throughput, memory, cost-per-token or fewest-gpus")]
Within = Annotated[str | None, option("--within", "longest acceptable step time, e.g. 20s")]
Tokens = Annotated[
    str | None, option("--tokens", "tokens to train on, to show the days (and dollars) of each layout, e.g. 2T")
]
Deadline = Annotated[str | None, option("--deadline", "longest time to train --tokens, failures not counted, e.g. 30d")]
Margin = Annotated[str, typer.Option("--margin", help="share of memory to keep free, 0.05 or 5%")]
Exclude = Annotated[
    list[str] | None, option("--exclude", "values or combinations to leave out: tp=16..64, 'tp=8 pp=1'")
]  # fmt: skip
Top = Annotated[int, typer.Option("--top", min=1, max=1000, metavar="<int>", help="how many layouts to rank")]
AllRanks = Annotated[
    bool,
    typer.Option("--all-ranks", help="also rank layouts that differ from a better one only in ZeRO or recomputation"),
]
Diff = Annotated[str | None, option("--diff", "compare two ranks side by side, e.g. 1,2")]
Price = Annotated[
    str | None,
    option("--price", "show cost: on-demand, spot, reserved-1y, reserved-3y, reserved, or your own USD per GPU-hour"),
]
Provider = Annotated[str | None, option("--provider", "price lists to use: names or TOML files [default: all]")]
Csv = Annotated[Path | None, option("--csv", "also write the ranked layouts to a CSV file")]
All = Annotated[Path | None, option("--all", "also write every layout to a .csv or .parquet file")]
Json = Annotated[bool, typer.Option("--json", help="print JSON (seconds, bytes) instead of tables")]
