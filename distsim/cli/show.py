"""``distsim show``: the presets, one kind of them, or one preset with the source of each figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from distsim.report import talk


def show(
    kind: Annotated[
        str | None,
        typer.Argument(help="models, gpus, clusters, frameworks, prices, ... (or the singular); families; topology"),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="a preset's name, alias or TOML file; of a plural also a part of names")
    ] = None,
    nccl_log: Annotated[
        str | None,
        typer.Option(help="with `topology`: a log written with NCCL_DEBUG=INFO, to draw its rings and trees"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON, in SI units, instead of tables")] = False,
) -> None:
    """Show the presets: how many of each kind, the names of a kind, or one preset's figures and their sources.

    `distsim show prices h200-sxm` lists what all providers ask for one accelerator. `distsim show families` lists the
    config.json model_types that can be read; with a name, what that family adds.
    `distsim show topology --nccl-log FILE` draws the rings and trees of an NCCL log instead.

    Example: distsim show gpu h100-sxm
    """
    from distsim import preset_kinds
    from distsim.cli.families import WORDS, show_families

    _refuse_blank(kind, name)
    if kind in WORDS:
        show_families(name, json)
    elif nccl_log is not None or kind == "topology":
        _show_topology(kind, nccl_log, json)
    elif kind is None:
        _show_kinds(json)
    elif name is None:
        _refuse_name(kind)
        _show_names(preset_kinds.kind_of(kind), None, json)
    elif kind in preset_kinds.KINDS and (named := _named_like(kind, name)):
        _show_names(kind, named, json)
    else:
        _show_preset(preset_kinds.kind_of(kind), name, json)


def _refuse_blank(kind: str | None, name: str | None) -> None:
    if name is not None and not name.strip():
        from distsim.errors import DistsimError

        raise DistsimError("the name is empty", f"list all names with: distsim show {kind}")


def _show_topology(kind: str | None, nccl_log: str | None, json: bool) -> None:
    from distsim.cli.network_files import show_topology
    from distsim.errors import DistsimError

    if kind != "topology":
        raise DistsimError("--nccl-log goes with the kind topology", "type: distsim show topology --nccl-log FILE")
    if nccl_log is None:
        raise DistsimError("topology needs a log", "type: distsim show topology --nccl-log FILE")
    show_topology(nccl_log, json)


def _show_kinds(json: bool) -> None:
    from distsim import catalog, preset_kinds

    counts = {kind: len(catalog.names(kind)) for kind in preset_kinds.KINDS}
    if json:
        return _print_json({"kinds": counts})
    from distsim.report import show as report

    return _print(report.kinds(counts))


def _refuse_name(word: str) -> None:
    """Raise where a preset's name, or its file, stands in the place of its kind."""
    from pathlib import Path

    from distsim import catalog
    from distsim.errors import DistsimError
    from distsim.preset_kinds import KINDS, called

    if called(word):
        return
    if Path(word).is_file():
        raise DistsimError(f"the kind of {word!r} is missing", f"put it first, e.g. distsim show gpus {word}")
    if kinds := [kind for kind in KINDS if catalog.knows(kind, word)]:
        lines = " or ".join(f"distsim show {kind} {word}" for kind in kinds)
        raise DistsimError(f"{word!r} is a preset, not a kind of them", f"type: {lines}")


def _named_like(kind: str, part: str) -> list[str]:
    """Presets with ``part`` in their names or aliases; none where it names one preset, or a file."""
    from distsim import catalog
    from distsim.interop.models import config_file, known_model
    from distsim.preset_files import plain

    one = config_file(part) or known_model(part) if kind == "models" else catalog.knows(kind, part)
    if one or not plain(part):
        return []
    also = {name for alias, name in catalog.aliases(kind).items() if plain(part) in alias}
    return [name for name in catalog.names(kind) if plain(part) in plain(name) or plain(name) in also]


def _show_names(kind: str, named: list[str] | None, json: bool) -> None:
    """All presets of a kind, or those that are ``named``."""
    from distsim import catalog, preset_kinds

    readable = kind not in preset_kinds.SUFFIXES  # measured runs are tables of their own
    with catalog.settled():
        listed = [
            (name, catalog.origin(kind, name), catalog.raw(kind, name) if readable else {})
            for name in (catalog.names(kind) if named is None else named)
        ]
        if json:
            keys = ("name", "origin", "aliases")
            values = ((name, where, raw.get("aliases", [])) for name, where, raw in listed)
            return _print_json({"kind": kind, "presets": [dict(zip(keys, one, strict=True)) for one in values]})
        from distsim.report import show as report

        return _print(report.names(kind, listed))


def _show_preset(kind: str, name: str, json: bool) -> None:
    from distsim import catalog, preset_kinds
    from distsim.interop.models import preset_of

    if kind in preset_kinds.SUFFIXES:
        return _show_table(kind, name, json)
    if kind == "models" and (config := _config_of(name)):
        return _show_config(name, config, json)
    if kind == "prices" and not catalog.knows(kind, name) and catalog.knows("gpus", name):
        return _show_chip_prices(catalog.load("gpus", name).name, json)
    _tell_reading(kind, name)
    name = preset_of(name) if kind == "models" else name
    spec = catalog.load(kind, name)  # checks the file even where the table below shows it as it is written
    raw, origin, file = catalog.raw(kind, name), catalog.origin(kind, name), str(catalog.path(kind, name))
    if json:
        figures = spec if isinstance(spec, dict) else spec.model_dump(mode="json")
        more = _counted(name) if kind == "models" else {}
        told = {"kind": kind, "name": raw["name"], "origin": origin, "file": file, **more, "spec": figures}
        return _print_json(told)
    if kind == "prices":
        import datetime

        from distsim.report.prices import price_list

        return _print(price_list(spec, origin, file, datetime.date.today()))
    from distsim.report import show as report

    counted = report.counted_words(_counted(name)) if kind == "models" else None
    return _print(report.preset(raw["name"], origin, file, raw, counted))


def _show_chip_prices(gpu: str, json: bool) -> None:
    """What all price lists ask for one accelerator, lowest on-demand rate first."""
    import datetime

    from distsim.engine.campaigns.chip_prices import prices_of
    from distsim.errors import DistsimError
    from distsim.specs.price import Offer

    found = prices_of(gpu)
    if not found:
        raise DistsimError(f"no price list has {gpu}", "your own goes into presets/prices/NAME.toml (docs/prices.md)")
    if json:
        rows = [
            {"row": "rent" if isinstance(row, Offer) else "purchase", "provider": prices.provider,
             "currency": prices.currency, "usd_per_unit": prices.usd_per_unit, **row.model_dump(mode="json")}
            for prices, row in found
        ]  # fmt: skip
        return _print_json({"kind": "prices", "gpu": gpu, "prices": rows})
    from distsim.report.prices import chip_prices

    return _print(chip_prices(gpu, found, datetime.date.today()))


def _show_table(kind: str, name: str, json: bool) -> None:
    """Measured runs as they are written, or as one object per row."""
    from distsim import catalog
    from distsim.interop.csv_rows import rows

    path = catalog.path(kind, name)
    found = rows(path)  # checks the file even where it is shown as it is written
    if not json:
        typer.echo(path.read_text(encoding="utf-8"), nl=False)
        return
    told = {"kind": kind, "name": path.stem, "origin": catalog.origin(kind, name), "file": str(path)}
    _print_json({**told, "rows": found})


def _config_of(name: str) -> str | None:
    """A Hugging Face configuration by its path, its folder or its name on the Hub, or another tool's file; None for a
    preset."""
    from distsim.interop.models import config_file, refuse_bare_folder

    if (found := config_file(name)) is not None:
        return str(found)
    refuse_bare_folder(name)
    if not Path(name).is_file():
        return None
    from distsim.interop.other_files import is_others

    return name if is_others(Path(name)) else None


def _show_config(name: str, file: str, json: bool) -> None:
    """A model as it is read from its configuration: what that states, and what the family adds."""
    from distsim.interop.models import config_file, read_model

    _tell_reading("models", name)
    spec, counted = read_model(name), _counted(name)
    if json:
        told = {"kind": "models", "name": spec.name, "origin": "file", "file": file, **counted}
        return _print_json({**told, "spec": spec.model_dump(mode="json")})
    from distsim.report import show as report

    figures = spec.model_dump(mode="json", exclude_defaults=True, exclude={"source"})
    whose = "its family's" if config_file(name) else "its tool's"
    origin = f"a configuration, with {whose} defaults"
    return _print(report.preset(spec.name, origin, file, figures, report.counted_words(counted)))


def _tell_reading(kind: str, name: str) -> None:
    """Prints what a user should know about how a model's file was read."""
    if kind == "models":
        from distsim.interop.models import reading_notes

        for note in reading_notes(name):
            talk.note(note)


def _counted(model: str) -> dict[str, Any]:
    """What follows from a model's figures: its parameters, by part, and those that one token uses."""
    from distsim.engine.jobs.flops import active_parameters
    from distsim.engine.jobs.models import load_model
    from distsim.engine.jobs.resolve import resolve
    from distsim.specs.job import Job

    loaded = load_model(model)
    active = active_parameters(resolve(Job(model=loaded.spec, gpus=1)))
    vision = {"vision_parameters": loaded.vision_parameters} if loaded.vision_parameters else {}
    return {"parameters": loaded.parameters, **vision, "parts": loaded.parts(), "parameters_per_token": round(active)}


def _print(lines: list[Any]) -> None:
    from distsim.report.console import console

    out = console()
    for line in lines:
        out.print(line)


def _print_json(answer: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps({"schema": "distsim.show/1", **answer}, indent=1, default=str))
