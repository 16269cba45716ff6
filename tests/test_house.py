"""The laws of the house: who may import whom, how large things may grow, where units live, that all has a source."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import pkgutil
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy
import pytest

import distsim.formulas
from distsim import catalog, preset_kinds
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.formula import REGISTRY
from distsim.specs.base import Sourced
from distsim.specs.job import Job

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "distsim"
FILES = sorted(PACKAGE.rglob("*.py"))
for _module in pkgutil.iter_modules(distsim.formulas.__path__):
    importlib.import_module(f"distsim.formulas.{_module.name}")

# room -> how far up the house it is; a room may import those below it, and itself
FLOORS = {
    "units": 0, "arrays": 0, "last": 0, "errors": 0, "keywords": 0, "other_names": 0, "other_choices": 0,
    "formula": 0, "formulas": 1, "schedules": 1, "specs": 2, "preset_kinds": 0, "preset_files": 0, "plain_files": 0,
    "preset_folders": 0, "preset_bases": 3,
    "catalog": 3, "architectures": 3, "layers": 3, "interop": 3, "engine": 4, "report": 5, "cli": 6,
}  # fmt: skip
# room or file of the engine -> how far up it is; a room may import those below it, and itself
ENGINE_FLOORS = {
    "calibrated": 0, "counted": 0, "processes": 0, "figures": 0, "timelines": 1, "networks": 1, "campaigns": 1,
    "jobs": 2, "footprint": 3, "kernels": 4, "exchanges": 5, "memory": 6, "traffic": 6, "collective": 6,
    "zero_stages": 7, "traffic_compare": 7, "corrections": 7, "steps": 8, "step": 9, "pipeline": 9,
    "pipeline_compare": 10, "runs": 10, "evidence": 11, "ranking": 12, "single_changes": 13, "validate": 14,
    "layouts": 10, "search": 11, "advice": 11, "plans": 12, "planner": 13, "fitting": 15,
}  # fmt: skip
ROOMS_OF = {
    "typer": ("cli",),
    "rich": ("report",),
    "pydantic": ("specs", "catalog"),
    "numpy": (
        "arrays",
        "engine/layouts",
        "engine/fitting",
        "engine/plans/campaign",
        "engine/timelines/lengths",
    ),
}
LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 300, 50, 11
EVERY_OPTION = ("cli/", "engine/pipeline.py")
"""Where a function takes each option of a command, or of the library's like, by its name."""


@functools.cache
def lines(path: Path) -> list[str]:
    """Of a file of the package; read once for all laws."""
    return path.read_text(encoding="utf-8").splitlines()


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Of a file's syntax tree, the module first."""
    return list(ast.walk(ast.parse("\n".join(lines(path)))))


def room(path: Path) -> str:
    """The room of a file: its folder under distsim, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


ENGINE = [path for path in FILES if room(path) == "engine"]


def law(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test of what must hold for each of many files, which tells all that break it: a test of its own for each file
    would cost more than what it looks at."""

    def made(holds: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            broken = []
            for path in paths:
                try:
                    holds(path)
                except AssertionError as error:
                    broken.append(f"{path.relative_to(PACKAGE)}: {error}")
            assert not broken, "\n".join(broken)

        test.__name__, test.__doc__ = holds.__name__, holds.__doc__
        return test

    return made


@functools.cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether it is imported when the file is) of every import that runs."""
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return list(_imports(module.body, True))


MODULES = {
    ".".join(("distsim", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in FILES
}


def _imports(body: list[ast.stmt], at_top: bool) -> Iterator[tuple[str, bool]]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name if name in MODULES else node.module, at_top) for name in names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(node.orelse, at_top)
        else:
            inner = not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for name in ("body", "orelse", "finalbody", "handlers"):
                yield from _imports(getattr(node, name, []), at_top and inner)


@law(FILES)
def test_imports_point_one_way(path: Path) -> None:
    mine = room(path)
    if mine in ("__init__", "__main__"):
        return
    for module, _ in imports(path):
        parts = module.split(".")
        if parts[0] != "distsim" or len(parts) == 1 or parts[1] not in FLOORS:
            continue
        assert parts[1] == mine or FLOORS[parts[1]] <= FLOORS[mine], f"{path} imports {module}"


def engine_room(module: str) -> str:
    """The room, or the file beside the rooms, of a module of the engine; nothing for others."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["distsim", "engine"] and len(parts) > 2 else ""


@law(ENGINE)
def test_rooms_of_the_engine_point_one_way(path: Path) -> None:
    """At the top, in functions and for types alike: what runs late is bound to what it names, too."""
    mine = engine_room(next(name for name, file in MODULES.items() if file == path))
    if not mine:
        return
    told = [node for node in nodes(path) if isinstance(node, ast.ImportFrom) and node.module]
    named = {f"{node.module}.{alias.name}" for node in told for alias in node.names}
    named |= {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
    for other in {engine_room(module) for module in named} - {"", mine}:
        assert ENGINE_FLOORS[other] < ENGINE_FLOORS[mine], f"{path} imports from {other}"


def test_the_page_on_design_names_every_room() -> None:
    """Floors in the order of its tables of rooms; the engine's own files in prose, the engine's rooms in a table."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+` ?)+)\|", page, re.MULTILINE)
    house = [name for row in rows for name in re.findall(r"\w+", row) if name in FLOORS]
    assert sorted(house) == sorted(FLOORS)
    assert [FLOORS[name] for name in house] == sorted(FLOORS.values())
    engine = {path.name for path in (PACKAGE / "engine").iterdir() if path.suffix == ".py" or path.is_dir()}
    rooms = {name.removesuffix(".py") for name in engine if not name.startswith("__")}
    assert rooms == ENGINE_FLOORS.keys() <= set(re.findall(r"`(\w+)(?:\.py)?`", page))
    table = [name for name in re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) if name in rooms]
    assert sorted(table) == sorted(
        path.name for path in (PACKAGE / "engine").iterdir() if (path / "__init__.py").exists()
    )
    assert table == sorted(table, key=ENGINE_FLOORS.__getitem__)


@functools.cache
def loaded_with(module: str) -> frozenset[str]:
    """All modules of the package that are imported when one is, its rooms among them."""
    found, waiting = set[str](), [module]
    while waiting:
        one = waiting.pop()
        asked = {name for name, at_top in imports(MODULES[one]) if at_top} | {one.rpartition(".")[0]}
        new = (asked & MODULES.keys()) - found
        found |= new
        waiting += new
    return frozenset(found)


@law(FILES)
def test_imports_wait_only_where_that_saves_something(path: Path) -> None:
    """An import stands inside a function where the file would not load the module anyway, or the two import each
    other."""
    mine = next(name for name, file in MODULES.items() if file == path)
    late = {module for module, at_top in imports(path) if not at_top and module in MODULES}
    idle = {module for module in late & loaded_with(mine) if mine not in loaded_with(module)}
    assert not idle, f"{path} imports inside a function what it loads anyway: {', '.join(sorted(idle))}"


@pytest.mark.parametrize("library", ROOMS_OF)
def test_one_library_one_room(library: str) -> None:
    for path in FILES:
        at_top_only = library == "numpy"  # a function may import numpy where it cannot do without
        used = any(module.split(".")[0] == library and (top or not at_top_only) for module, top in imports(path))
        place = str(path.relative_to(PACKAGE))
        assert not used or place.startswith(ROOMS_OF[library]), f"{place} imports {library}"


@law(FILES)
def test_files_and_functions_are_small(path: Path) -> None:
    assert len(lines(path)) <= LONGEST_FILE
    for node in nodes(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"
            taken = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
            options = str(path.relative_to(PACKAGE)).startswith(EVERY_OPTION)
            assert options or taken <= MOST_PARAMETERS, f"{node.name} takes {taken} parameters"


@law(FILES)
def test_every_file_says_what_it_is(path: Path) -> None:
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    assert not module.body or ast.get_docstring(module)


SHOWN = {
    "traffic.py": {"Row", "purposes"},  # rows of a table, those of one purpose together
    "exchanges/offloading.py": {"Flow"},
    "steps/passes.py": {"track.run", "self.beside"},  # what a timeline calls its bars
    "steps/timeline.py": {"track.run"},
}
"""Files of the engine that hand on what an exchange is called to be printed, and to whom."""


@law(ENGINE)
def test_physics_does_not_read_what_people_do(path: Path) -> None:
    """Nothing in the engine compares the purpose of an exchange, parses it, looks anything up by it or hands it to a
    function that could, but to print it: its role and place are typed."""
    shown = SHOWN.get(str(path.relative_to(PACKAGE / "engine")), set())
    for node in nodes(path):
        asked: list[ast.expr] = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if isinstance(node, ast.Call):
            asked = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            if ast.unparse(node.func) not in shown:
                asked += [*node.args, *(one.value for one in node.keywords if one.arg != "purpose")]
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) not in shown:
            asked = [node.slice]
        words = [one for one in asked if isinstance(one, ast.Attribute) and one.attr == "purpose"]
        assert not words, f"{path}:{node.lineno}: {ast.unparse(node)}" if isinstance(node, ast.expr) else path


STATED = {"framework", "optimizer", "precision", "accelerator", "chip", "card", "model", "cluster", "unit", "recipe",
          "tuning", "quantization"}  # fmt: skip
"""What a job is made of: what of it decides is a field of its preset, so that a copy under another name is alike."""


def tells_by_name(node: ast.AST) -> bool:
    """Whether code asks by a name, or a vendor, which of several presets it has: compares it with written words,
    looks at how it begins or ends, or looks something up by it."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(map(_names, sides)) and any(map(_written, sides))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        table = isinstance(node.func.value, ast.Name) and node.func.value.id.isupper()
        starts = node.func.attr in ("startswith", "endswith") and _names(node.func.value)
        return starts or (table and node.func.attr == "get" and any(map(_names, node.args)))
    return isinstance(node, ast.Subscript) and _written(node.value) and _names(node.slice)


def _names(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr not in ("name", "vendor"):
        return False
    return ast.unparse(node.value).rpartition(".")[2] in STATED


def _written(node: ast.AST) -> bool:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return all(map(_written, node.elts))
    words = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return words or (isinstance(node, ast.Name) and node.id.isupper())


@pytest.mark.parametrize(
    "code", ["setup.precision.name in RECIPES", "card.vendor == 'NVIDIA'", "TABLE.get(chip.vendor)",
             "model.name.startswith(starts)", "TABLE[framework.name]"],
)  # fmt: skip
def test_what_asks_for_a_name_is_found(code: str) -> None:
    assert any(map(tells_by_name, ast.walk(ast.parse(code))))


@law([path for path in FILES if room(path) in ("engine", "specs", "layers", "formulas")])
def test_no_name_of_a_preset_decides(path: Path) -> None:
    if path.is_relative_to(PACKAGE / "engine" / "runs"):
        return  # replays go by what people wrote
    for node in nodes(path):
        assert not tells_by_name(node), f"{path}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


WORDS_READ_BY = ("re", "distsim.interop.runs.hits", "distsim.interop.runs.denials")


@law([path for path in ENGINE if path.is_relative_to(PACKAGE / "engine" / "runs")])
def test_what_rows_say_is_read_in_one_room(path: Path) -> None:
    """The engine asks what a row tells; what words tell it is known to ``interop/runs`` alone."""
    read = [module for module, _ in imports(path) if module in WORDS_READ_BY]
    assert not read, f"{path} reads words with {', '.join(read)}"


def untold(path: Path) -> list[str]:
    """Constants of a module that hold numbers with no word of what these are: no sentence beneath, no comment on the
    line, none above it and those that stand with it."""
    module, text, found, told = ast.parse(path.read_text(encoding="utf-8")), lines(path), list[str](), False
    for node, after in itertools.zip_longest(module.body, module.body[1:]):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            told = False
            continue
        before, end = text[node.lineno - 2], text[(node.end_lineno or 0) - 1]
        told = before.startswith("#") or (told and before != "")
        beside = "#" in end and "# fmt" not in end
        beneath = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if _numbers(node.value) and not (told or beside or beneath):
            found.append(ast.unparse(node))
    return found


def _numbers(node: ast.expr) -> bool:
    """Whether a value is a number, or a table of numbers alone."""
    if isinstance(node, ast.Dict):
        return bool(node.values) and all(map(_numbers, node.values))
    if isinstance(node, (ast.Tuple, ast.List)):
        return bool(node.elts) and all(map(_numbers, node.elts))
    if isinstance(node, ast.BinOp):
        return _numbers(node.left) or _numbers(node.right)
    if isinstance(node, ast.UnaryOp):
        return _numbers(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


@law([path for path in FILES if room(path) in ("formulas", "schedules", "layers", "engine")])
def test_numbers_are_told_what_they_are(path: Path) -> None:
    assert not untold(path)


def test_files_that_are_begun_first_exist() -> None:
    from conftest import LONG

    assert {path.stem for path in (ROOT / "tests").glob("test_*.py")} >= set(LONG)


def test_numbers_without_a_word_are_found(tmp_path: Path) -> None:
    told = '"""A module."""\nA = 1\n"""Told."""\nB = 2\nC = 3  # told\n\n# These are told.\nD = 4\nE = (5, -6)\n\n'
    file = tmp_path / "some.py"
    file.write_text(told + 'F = {"a": 7 * 2}\nG = True\n')
    assert untold(file) == ["B = 2", "F = {'a': 7 * 2}"]


LEDGERS = (
    ("llama-3.1-8b", "torchtitan"), ("gpt2", "plain-torch"), ("bert-base", "huggingface"), ("t5-small", "huggingface"),
    ("clip-vit-base-patch32", "huggingface"), ("whisper-tiny", "huggingface"), ("qwen1.5-moe-a2.7b", "huggingface"),
    ("ernie-4.5-21b-a3b", "megatron-core"), ("deepseek-v3.2", "torchtitan"), ("deepseek-v4-flash", "megatron-core"),
    ("gemma-2-2b", "huggingface"), ("jamba-v0.1", "megatron-core"), ("kimi-linear-48b-a3b", "megatron-core"),
)  # fmt: skip
"""Networks of all kinds, for the names of their rows, tensors and parameters."""
OWN_WORDS = ("jobs/flops.py",)
"""Whose names of parameters are written there still."""


@functools.cache
def names_of_ledgers() -> frozenset[str]:
    found: set[str] = set()
    for model, framework in LEDGERS:
        attention = "eager" if framework in ("plain-torch", "huggingface") else None
        setup = resolve(Job(model=model, gpu="h100-sxm", gpus=1, framework=framework, attention=attention))
        rows = [row for stage in build_stages(setup) for row, _ in stage.operations()]
        for row in rows:
            tensors = (*row.saved, *row.transient_forward, *row.transient_backward)
            found |= {row.name, *(one.name for one in (*tensors, *row.parameters))}
    return frozenset(found)


@law(ENGINE)
def test_names_of_the_ledger_are_written_once(path: Path) -> None:
    """Rows, tensors and parameters are known in the engine by the constants of layers/names.py: whole names of several
    words, and what names begin or end with."""
    if str(path).endswith(OWN_WORDS):
        return
    told = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}  # sentences beside the code
    for node in nodes(path):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in told:
            continue
        assert not names_a_row(node.value), f"{path}:{node.lineno}: {node.value!r}"


def names_a_row(text: str) -> bool:
    """Whether it is a name of several words, or how one begins or ends."""
    known = names_of_ledgers()
    if text.startswith(".") and len(text) > 1:
        return any(name.endswith(text) for name in known)
    if text.endswith(".") and len(text) > 1:
        return any(name.startswith(text) for name in known)
    return "." in text and text in known


UNIT_CONSTANTS = {1024, 2**20, 2**30, 2**40, 3600, 86400, 10**3 * 10**6, 10**12, 10**15}


@law(FILES)
def test_unit_constants_live_in_units(path: Path) -> None:
    """No bare 1024, 2**30, 1e9 or 3600 outside units.py; limits of specs' fields and sizes of caches are no units."""
    if path.name == "units.py":
        return
    for node in nodes(path):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base, power = node.left, node.right
            if isinstance(base, ast.Constant) and isinstance(power, ast.Constant):
                assert not (base.value == 2 and power.value in (10, 20, 30, 40)), f"{path}:{node.lineno}"
                assert not (base.value == 10 and power.value in (3, 6, 9, 12)), f"{path}:{node.lineno}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv)):
            for side in (node.left, node.right):
                if isinstance(side, ast.Constant) and side.value in UNIT_CONSTANTS:
                    raise AssertionError(f"{path}:{node.lineno}: {ast.unparse(node)}")


def loaded(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after some code."""
    told = "import sys; sys.stderr.write(' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"import os, contextlib\n{code}\n{told}"], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_help_loads_nothing(words: list[str]) -> None:
    code = f"from distsim.cli.app import run\nwith contextlib.redirect_stdout(open(os.devnull, 'w')): run({words!r})"
    assert not loaded(code) & {"pydantic", "rich", "numpy", "typer", "tomllib"}


@pytest.mark.parametrize("words", [["--json"], [], ["--explain"]])
def test_one_estimate_loads_no_numpy_and_no_rich(words: list[str]) -> None:
    command = ["memory", "llama-7b", "--zero", "2", *words]
    code = f"from distsim.cli.app import run\nwith contextlib.redirect_stdout(open(os.devnull, 'w')): run({command!r})"
    assert not loaded(code) & {"numpy", "rich"}


def test_a_small_search_loads_no_plan_and_starts_no_process() -> None:
    command = ["search", "llama-7b", "--gpus", "8", "--pp", "1", "--cp", "1"]
    code = f"from distsim.cli.app import run\nwith contextlib.redirect_stdout(open(os.devnull, 'w')): run({command!r})"
    assert not loaded(code) & {"multiprocessing", "concurrent"}
    planning = "print('distsim.engine.plans' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", f"import os, sys, contextlib\n{code}\n{planning}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stderr.split()[-1] == "False"


def test_importing_distsim_is_cheap() -> None:
    assert not loaded("import distsim") & {"pydantic", "rich", "numpy", "typer"}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_formulas_have_unit_source_and_explanation(name: str) -> None:
    formula = REGISTRY[name]
    assert formula.unit
    assert len(formula.source) > 8
    assert (formula.function.__doc__ or "").strip()


def test_formula_names_are_unique() -> None:
    names = []
    for path in (PACKAGE / "formulas").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        names += [one.name for one in functions if any("formula" in ast.unparse(d) for d in one.decorator_list)]
    assert len(names) == len(set(names)) == len(REGISTRY)


def takes_numbers(name: str) -> bool:
    parameters = inspect.signature(REGISTRY[name].function).parameters.values()
    kinds = [str(p.annotation) for p in parameters]
    return bool(kinds) and all("Number" in kind or kind in ("float", "int") for kind in kinds)


@pytest.mark.parametrize("name", sorted(name for name in REGISTRY if takes_numbers(name)))
def test_formulas_work_on_arrays_as_on_numbers(name: str) -> None:
    function = REGISTRY[name].function
    parameters = list(inspect.signature(function).parameters)
    rng = random.Random(name)
    rows = [{p: rng.choice((1, 2, 3, 4, 8)) for p in parameters} for _ in range(40)]
    one_by_one = []
    kept = []
    for row in rows:
        try:
            answer = function(**row)
        except ZeroDivisionError:
            continue
        if not isinstance(answer, complex):  # a power outside the formula's range
            one_by_one.append(float(answer))
            kept.append(row)
    arrays = {p: numpy.array([row[p] for row in kept], dtype=float) for p in parameters}
    with numpy.errstate(all="ignore"):
        together = numpy.broadcast_to(function(**arrays), (len(kept),))
    numpy.testing.assert_allclose(together, one_by_one, rtol=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in preset_kinds.KINDS if kind != "runs"])
def test_every_preset_has_a_source(kind: str) -> None:
    for path in sorted((ROOT / "presets" / kind).glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
        source = data.get("source")
        assert source, f"{path.name} has no source"
        assert "checked" in (source if isinstance(source, dict) else data), f"{path.name} does not say when"
        spec = catalog.load(kind, path.stem)
        if isinstance(spec, Sourced):
            bare = [figure for figure, _ in spec.figures() if figure in _stated(data) and not spec.source_of(figure)]
            assert not bare, f"{path.name}: no source for {bare}"


@pytest.mark.parametrize("name", catalog.names("frameworks"))
def test_every_line_of_a_framework_has_a_source(name: str) -> None:
    """Those of its own file from that file alone, those that it has of another from either."""
    data = catalog.raw("frameworks", name)
    named = ("name", "aliases", "based_on", "source")
    stated = _stated({key: value for key, value in data.items() if key not in named})
    framework = catalog.load("frameworks", name)
    assert not [figure for figure in stated if not framework.source_of(figure)]


def _stated(data: dict[str, object], prefix: str = "") -> set[str]:
    found = set()
    for key, value in data.items():
        found |= _stated(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key}
    return found


def test_no_secrets_of_the_workshop() -> None:
    """Nothing points at a machine that a reader does not have."""
    pattern = re.compile(r"/(work|root|home|tmp)/\w+")
    for folder in ("distsim", "docs", "presets", "benchmarks"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".md", ".toml"):
                found = pattern.search(path.read_text(encoding="utf-8"))
                assert not found, f"{path}: {found}"
