"""``distsim show families``: which model_types of a config.json are read, and what one of them adds to a file."""

from __future__ import annotations

from typing import Any

import typer

WORDS = ("families", "family")


def show_families(name: str | None, json: bool) -> None:
    """All families, or one of them; an error says why where it is none."""
    from dataclasses import asdict

    from distsim.interop.huggingface.families import FOLDER, load_family, parent, supported
    from distsim.interop.huggingface.refused import REFUSED
    from distsim.report import families as report
    from distsim.report.console import console

    lines: list[Any]
    if name is None:
        found = {family: parent(family) for family in supported()}
        lines, answer = report.names(found), {"families": list(found), "refused": REFUSED}
    else:
        told = asdict(load_family(name))
        answer = {key: value for key, value in told.items() if value or value == {}}
        lines = report.one(answer, str(FOLDER / f"{told['name']}.toml"))
    if json:
        from json import dumps

        typer.echo(dumps({"schema": "distsim.show/1", "kind": "families", **answer}, indent=1, default=str))
        return
    for line in lines:
        console().print(line)
