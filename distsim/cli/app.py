"""Finds the command that was asked for and runs it; help and version cost no more than the interpreter."""

from __future__ import annotations

import importlib
import os
import sys

from distsim import __version__

TYPE_CHECKING = False  # typing itself is left out: plain help costs no more than the interpreter
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from typer.core import TyperCommand

# name -> (group, what it answers). A command's module is imported when it is run, and only then.
COMMANDS: dict[str, tuple[str, str]] = {
    "memory": ("Estimate", "where every byte on each GPU goes, and whether it fits"),
    "comm": ("Estimate", "what crosses which link in one optimizer step"),
    "pipeline": ("Estimate", "a schedule's timeline, bubble and activations in flight"),
    "step": ("Estimate", "how long one optimizer step takes, and why"),
    "search": ("Decide", "the best layouts for a number of GPUs"),
    "plan": ("Decide", "what to buy or rent: days, dollars, energy"),
    "validate": ("Trust", "predictions held against measured runs"),
    "calibrate": ("Trust", "a profile fitted to your own measurements"),
    "show": ("Look", "the presets: models, GPUs, clusters, frameworks"),
}
UNREAD = 141
"""Exit code as shells have it of a program that a broken pipe ends: 128 and SIGPIPE."""
INTERRUPTED = 130
"""As shells have it of one that Ctrl-C ends: 128 and SIGINT."""
OUTPUTS = ("--all", "--csv", "--output", "--report", "--svg", "--trace")
"""Options that name a file to write; a plan's --csv is a switch, whatever follows it."""
EXAMPLES = (
    "distsim memory llama-7b --zero 2",
    "distsim pipeline --stages 4 --micro 8",
    "distsim show gpu h100-sxm",
)


class Interrupted(Exception):
    """Ctrl-C while a command runs, which the library below would end without a word."""


def available() -> list[str]:
    """Commands whose module is there."""
    here = os.path.dirname(__file__)
    return [name for name in COMMANDS if os.path.exists(os.path.join(here, f"{name}.py"))]


def help_text() -> str:
    """The overview that ``distsim --help`` prints."""
    lines = [
        "usage: distsim COMMAND [OPTIONS]",
        "",
        "Bytes, traffic, time and cost of a distributed training run,",
        "before a GPU is rented.",
    ]
    known = available()
    for group in dict.fromkeys(group for group, _ in COMMANDS.values()):
        rows = [(name, COMMANDS[name][1]) for name in known if COMMANDS[name][0] == group]
        if rows:
            lines += ["", f"{group}:", *(f"  {name:<10} {answer}" for name, answer in rows)]
    lines += ["", "Examples:", *(f"  {example}" for example in EXAMPLES)]
    return "\n".join([*lines, "", "distsim COMMAND --help lists its options; distsim --version prints the version."])


def _version() -> str:
    return f"distsim {__version__}"


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code: 0 done, 1 the answer is no, 2 the input is wrong."""
    try:
        return _answered(arguments)
    except BrokenPipeError:
        return _unread()
    except (KeyboardInterrupt, Interrupted):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _answered(arguments: list[str]) -> int:
    from distsim.errors import DistsimError

    try:
        return _run(arguments)
    except DistsimError as error:
        return _wrong(error.text())
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, a file that went away
        told = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        return _wrong(told or str(error))


def _wrong(text: str) -> int:
    from distsim.report.talk import error

    error(text)
    return 2


def _unread() -> int:
    """The reader of a stream that is not our own went away (cli/streams.py has ours) before all was said: what is left
    goes nowhere, and nobody takes that for an answer."""
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return UNREAD


def _run(arguments: list[str]) -> int:
    from distsim.errors import DistsimError, did_you_mean

    if not arguments or arguments[0] in ("--help", "-h", "help"):
        if len(arguments) > 1:
            return _run([arguments[1], "--help"])
        print(help_text())
        return 0
    if arguments[0] in ("--version", "-V"):
        print(_version())
        return 0
    arguments = ["--help" if one == "-h" else one for one in arguments]
    name = arguments[0]
    if name not in available():
        first = f"a command comes first: distsim memory llama-7b {name}" if name.startswith("-") else ""
        raise DistsimError(
            f"unknown command {name!r}", first or did_you_mean(name, available()), f"commands: {', '.join(available())}"
        )
    return _call(name, arguments[1:])


def _look(name: str, arguments: list[str]) -> type[TyperCommand] | None:
    """The class that prints help in sections, where help is asked for and there are many options."""
    if arguments and "--help" not in arguments:
        return None
    from distsim.cli.help_sections import BY_COMMAND, sectioned

    return sectioned(name) if name in BY_COMMAND else None


def _interruptible(function: Callable[..., None]) -> Callable[..., None]:
    import functools

    @functools.wraps(function)
    def called(**values: Any) -> None:
        try:
            function(**values)
        except KeyboardInterrupt:
            raise Interrupted from None

    return called


def _call(name: str, arguments: list[str]) -> int:
    import typer

    from distsim.cli import places
    from distsim.cli.narrow import narrowed
    from distsim.specs.no_plugins import spare_search

    if "--help" not in arguments:  # which needs no pydantic
        spare_search()
    module = importlib.import_module(f"distsim.cli.{name}")
    _refuse_valueless(getattr(module, name), arguments)
    if any(word.partition("=")[0] in OUTPUTS for word in arguments):
        from distsim.cli.whole_file import refuse_same

        refuse_same(arguments)
    function = _interruptible(narrowed(getattr(module, name), arguments))
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    wants_words = getattr(module, "NO_ARGS_IS_HELP", False)
    app.command(name=name, cls=_look(name, arguments), no_args_is_help=wants_words)(function)
    try:
        with places.named():
            code = app(arguments, prog_name=f"distsim {name}", standalone_mode=False)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # which the library below takes for a failure
            return _unread()
        code = 0 if stop.code is None else stop.code
        return code if isinstance(code, int) else 2
    except Exception as wrong:
        if not hasattr(wrong, "format_message"):
            raise
        return _misused(wrong, name, arguments)
    return code if isinstance(code, int) else 0


def _refuse_valueless(command: Callable[..., None], arguments: list[str]) -> None:
    from distsim.cli.misuse import lacks_values, refuse_valueless

    if "--help" not in arguments and lacks_values(arguments):
        from distsim.cli.narrow import flags_of

        refuse_valueless(flags_of(command, switches=False), flags_of(command), arguments)


def _misused(wrong: Any, name: str, arguments: list[str]) -> int:
    """Help where nothing was asked, else what of the command line does not parse."""
    if type(wrong).__name__ == "NoArgsIsHelpError":
        wrong.show()
        return 2
    from distsim.cli.misuse import as_error

    return _wrong(as_error(wrong, name, arguments).text())
