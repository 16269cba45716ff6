"""Presets are found by name, path and alias, in the documented order, and nothing else is read on the way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distsim import catalog, preset_files, preset_kinds
from distsim.errors import DistsimError

CARD = """
name = "{name}"
aliases = ["{alias}"]
vendor = "v"
architecture = "a"
memory = "{memory}"
bandwidth = "1 TB/s"
[peak]
bf16 = "100 TFLOP/s"
"""


def write(folder: Path, name: str, alias: str = "", memory: str = "10 GB", kind: str = "gpus") -> Path:
    (folder / kind).mkdir(parents=True, exist_ok=True)
    file = folder / kind / f"{name}.toml"
    file.write_text(CARD.format(name=name, alias=alias or f"{name}-alias", memory=memory), encoding="utf-8")
    return file


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """An empty working folder, a DISTSIM_PRESETS of two folders, and a user's configuration folder."""
    folders = {one: tmp_path / one for one in ("work", "first", "second", "config")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.chdir(folders["work"])
    monkeypatch.setenv("DISTSIM_PRESETS", os.pathsep.join(map(str, (folders["first"], folders["second"]))))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folders["config"]))
    return folders


def test_search_order(places: dict[str, Path]) -> None:
    assert catalog.origin("gpus", "h100-sxm") == "shipped"
    steps = [
        (places["config"] / "distsim" / "presets", "user"),
        (places["second"], "DISTSIM_PRESETS"),
        (places["first"], "DISTSIM_PRESETS"),
        (Path("presets"), "./presets"),
    ]
    for number, (folder, origin) in enumerate(steps, start=1):
        file = write(folder, "h100-sxm", memory=f"{number} GB")
        assert catalog.origin("gpus", "h100-sxm") == origin
        assert catalog.path("gpus", "h100-sxm").resolve() == file.resolve()
        assert catalog.load("gpus", "h100-sxm").memory == number * 1e9
    explicit = write(places["work"] / "elsewhere", "h100-sxm", memory="9 GB")
    assert catalog.load("gpus", str(explicit)).memory == 9e9
    assert catalog.origin("gpus", str(explicit)) == "path"
    assert catalog.load("gpus", "./elsewhere/gpus/h100-sxm.toml").memory == 9e9


def test_home_is_the_user_folder_without_xdg(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(places["work"]))
    write(places["work"] / ".config" / "distsim" / "presets", "mine")
    assert catalog.origin("gpus", "mine") == "user"


@pytest.mark.parametrize("name", ["h100-sxm", "H100-SXM", "h100 sxm", "H100_SXM", "h100", "H100"])
def test_case_blanks_and_aliases(name: str) -> None:
    assert catalog.load("gpus", name).name == "h100-sxm"


def test_names_with_underscores_are_found() -> None:
    assert catalog.load("clusters", "ND96isr_H100_v5").name == "nd96isr_h100_v5"


def test_user_names_are_listed_with_the_shipped(places: dict[str, Path]) -> None:
    write(places["first"], "Mine-1")
    listed = catalog.names("gpus")
    assert "Mine-1" in listed
    assert "h100-sxm" in listed
    assert len(listed) == len(set(listed))
    assert catalog.load("gpus", "mine-1").name == "Mine-1"


def test_name_wins_over_alias_and_outer_alias_over_shipped(places: dict[str, Path]) -> None:
    write(places["first"], "other", alias="h100-sxm")
    assert catalog.load("gpus", "h100-sxm").name == "h100-sxm"
    write(places["first"], "another", alias="h100")
    assert catalog.load("gpus", "h100").name == "another"


@pytest.mark.parametrize("kind", list(preset_kinds.KINDS))
def test_shipped_aliases_are_unique_and_no_names(kind: str) -> None:
    if kind in preset_kinds.SUFFIXES:
        return
    seen: dict[str, str] = {}
    listed = {name.lower() for name in catalog.names(kind)}
    for name in catalog.names(kind):
        raw = catalog.raw(kind, name)
        assert raw["name"].lower() == name.lower(), catalog.path(kind, name)
        for alias in raw.get("aliases", ()):
            assert alias not in listed - {name.lower()}, f"{alias} of {name} is the name of another preset"
            assert alias not in seen, f"{alias} is an alias of {name} and {seen[alias]}"
            assert catalog.path(kind, alias) == catalog.path(kind, name)
            seen[alias] = name


def test_only_the_file_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    original = preset_files.text_of

    def spy(file: Path) -> str:
        read.append(file)
        return original(file)

    monkeypatch.setattr(preset_files, "text_of", spy)
    catalog._load.cache_clear()
    catalog.load("gpus", "a100-sxm4-80gb")
    assert [one.name for one in read] == ["a100-sxm4-80gb.toml"]
    catalog.names("gpus")
    assert len(read) == 1


def test_listing_needs_no_pydantic() -> None:
    heavy = "{'pydantic', 'rich', 'numpy', 'typer'}"
    code = f"import sys; from distsim import catalog; catalog.names('gpus'); print(sorted(set(sys.modules) & {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_changed_file_is_read_again(places: dict[str, Path]) -> None:
    file = write(places["first"], "mine", memory="10 GB")
    assert catalog.load("gpus", "mine").memory == 10e9
    write(places["first"], "mine", memory="12 GB")
    os.utime(file, ns=(1, 1))
    assert catalog.load("gpus", "mine").memory == 12e9


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("gpus", "h10-sxm", ("unknown gpu 'h10-sxm'", "h100-sxm", "distsim show gpus")),
        ("gpus", "jean-zai", ("unknown gpu", "jean-zay", "--cluster", "distsim show gpus")),
        ("gpus", "v5p-256", ("slice of 128 chips (256 TensorCores): --gpu tpu-v5p --gpus 128",)),
        ("clusters", "v4-128", ("slice of 64 chips (128 TensorCores): --gpu tpu-v4 --gpus 64",)),
        ("gpus", "v5litepod-16", ("slice of 16 chips: --gpu tpu-v5e --gpus 16",)),
        ("gpus", "TPU v6e-8", ("slice of 8 chips: --gpu tpu-v6e --gpus 8",)),
        ("gpus", "v5p-5", ("did you mean v5p?",)),
        ("gpus", "p5.48xlarge", ("a cluster with 8 h100-sxm per node: --cluster p5.48xlarge",)),
        ("gpus", "ND H100 v5", ("a cluster with 8 h100-sxm per node: --cluster nd96isr_h100_v5",)),
        ("clusters", "Standard_ND96isr_H100_v5", ("a cluster with 8 h100-sxm per node: --cluster nd96isr_h100_v5",)),
        ("gpus", "a3-highgpu-1g", ("did you mean a3-highgpu-8g", "--cluster")),
        ("gpus", "8x H100", ("--gpu h100-sxm --gpus 8",)),
        ("clusters", "h100", ("it is an accelerator: --gpu h100-sxm",)),
        ("clusters", "h100:8", ("--gpu h100-sxm --gpus 8",)),
        ("gpus", "Apple M2 Ultra", ("unknown gpu 'Apple M2 Ultra'", "Apple silicon is not described", "show gpus")),
        ("gpus", "m3-max", ("Apple silicon is not described",)),
        ("gpus", "mps", ("Apple silicon is not described",)),
        ("clusters", "mac-studio", ("Apple silicon is not described",)),
        ("gpus", "cpu", ("CPUs are not described",)),
        ("gpus", "Intel Xeon Platinum 8480+", ("CPUs are not described",)),
        ("gpus", "AMD EPYC 9654", ("CPUs are not described",)),
        ("gpus", "cuda:0", ("what torch calls any such device",)),
        ("gpus", "./h100-sxm.toml", ("no file", "h100-sxm")),
        ("gpu cards", "h100", ("unknown kind", "gpus")),
        ("gpus", "", ("unknown gpu",)),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(kind: str, name: str, words: tuple[str, ...]) -> None:
    with pytest.raises(DistsimError) as raised:
        catalog.load(kind, name)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("models", "llama7b", "llama-7b"),
        ("models", "Llama-3-1-8B", "llama-3.1-8b"),
        ("models", "mixtral8x7b", "mixtral-8x7b"),
        ("gpus", "RTX6000Ada", "rtx-6000-ada"),
        ("gpus", "Max1550", "max-1550"),
        ("clusters", "dgxh100", "dgx-h100"),
    ],
)
def test_hyphens_and_points_may_be_left_out(kind: str, name: str, meant: str) -> None:
    assert catalog.path(kind, name) == catalog.path(kind, meant)


def test_a_name_that_could_be_two_is_neither(places: dict[str, Path]) -> None:
    for name in ("my-card", "mycard"):
        write(places["first"], name)
    assert catalog.path("gpus", "mycard").stem == "mycard"
    with pytest.raises(DistsimError, match="did you mean my-card"):
        catalog.load("gpus", "my-c-ard")
    for wrong in ("gpt2-15b", "llama38b", "optim-adam-w"):
        assert not catalog.knows("models", wrong)
    assert not catalog.knows("optimizers", "adam-w")


def test_nearest_alias_is_offered() -> None:
    with pytest.raises(DistsimError, match="jean-zay"):
        catalog.load("clusters", "jean-zey")


def test_broken_file_names_file_and_line(places: dict[str, Path]) -> None:
    file = write(places["first"], "broken")
    file.write_text('name = "broken"\nmemory = = 3\n', encoding="utf-8")
    with pytest.raises(DistsimError, match=rf"{file.name}:2: not valid TOML"):
        catalog.load("gpus", "broken")
    file.write_bytes(b'name = "\xff"\n')
    with pytest.raises(DistsimError, match="is not a text file"):
        catalog.load("gpus", "broken")
    assert catalog.load("gpus", "h100").name == "h100-sxm"  # a broken neighbour is nobody else's trouble


def test_wrong_field_names_file_and_nearest_field(places: dict[str, Path]) -> None:
    file = write(places["first"], "mine")
    file.write_text(file.read_text(encoding="utf-8").replace("bandwidth", "bandwith"), encoding="utf-8")
    with pytest.raises(DistsimError) as raised:
        catalog.load("gpus", "mine")
    for word in (str(file), "unknown field 'bandwith'", "did you mean bandwidth", "'bandwidth' is missing"):
        assert word in str(raised.value)


def test_folder_instead_of_file(places: dict[str, Path]) -> None:
    (places["work"] / "x.toml").mkdir()
    with pytest.raises(DistsimError, match=r"'x.toml' is a folder, not a file"):
        catalog.load("gpus", "x.toml")


def test_cluster_file_may_point_to_an_accelerator_file(places: dict[str, Path]) -> None:
    card = write(places["work"] / "lab", "card")
    node = places["work"] / "lab" / "node.toml"
    node.write_text(
        'name = "node"\ngpu = "gpus/card.toml"\ngpus_per_node = 2\ndomain = 2\n'
        '[fabric]\nkind = "pcie"\nrate = "25 GB/s"\n',
        encoding="utf-8",
    )
    loaded = catalog.load("clusters", str(node))
    assert Path(loaded.gpu) == card.resolve()
    assert catalog.load("gpus", loaded.gpu).name == "card"


def test_accelerator_without_usual_cluster_says_what_to_do(places: dict[str, Path]) -> None:
    write(places["first"], "lonely")
    with pytest.raises(DistsimError, match="--cluster"):
        catalog.usual_cluster("lonely")


@pytest.mark.parametrize(
    ("word", "kind"), [("gpu", "gpus"), ("GPUs", "gpus"), ("model", "models"), ("storage", "storage")]
)
def test_kinds_in_singular_and_plural(word: str, kind: str) -> None:
    assert preset_kinds.kind_of(word) == kind


def test_presets_inside_the_package_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an installed wheel the presets lie next to catalog.py; in a checkout one folder up."""
    checkout, installed = tmp_path / "checkout", tmp_path / "installed"
    monkeypatch.setattr(catalog, "__file__", str(checkout / "distsim" / "catalog.py"))
    assert catalog.shipped_folder() == checkout / "presets"
    (installed / "distsim" / "presets").mkdir(parents=True)
    monkeypatch.setattr(catalog, "__file__", str(installed / "distsim" / "catalog.py"))
    assert catalog.shipped_folder() == installed / "distsim" / "presets"


DOCS = Path(__file__).parent.parent / "docs" / "presets.md"
BLOCK = re.compile(r"```toml\n# presets/(\w+)/([\w.-]+)\.toml\n(.*?)```", re.DOTALL)
EXAMPLES = BLOCK.findall(DOCS.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("kind", "name", "text"), EXAMPLES, ids=[name for _, name, _ in EXAMPLES])
def test_documented_presets_load(kind: str, name: str, text: str, places: dict[str, Path]) -> None:
    (places["first"] / kind).mkdir()
    (places["first"] / kind / f"{name}.toml").write_text(text, encoding="utf-8")
    loaded = catalog.load(kind, name)
    assert loaded.name == name
    bare = [figure for figure, _ in loaded.figures() if not loaded.source_of(figure)]
    assert set(bare) <= ({"usual_samples", "vocab_multiple"} if kind == "frameworks" else set())  # nobody states these


def test_documentation_shows_each_kind_of_preset() -> None:
    kinds = {"gpus", "architectures", "clusters", "models", "frameworks", "optimizers"}
    assert {kind for kind, _, _ in EXAMPLES} == kinds


def test_places_are_remembered_only_while_they_are_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with catalog.settled():
        assert not catalog.knows("gpus", "mine")
        (tmp_path / "presets" / "gpus").mkdir(parents=True)
        shutil.copy(catalog.path("gpus", "h100-sxm"), tmp_path / "presets" / "gpus" / "mine.toml")
        assert not catalog.knows("gpus", "mine")
    assert catalog.knows("gpus", "mine")


def test_shipped_presets_are_listed_again_where_a_file_comes_or_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that asks for thousands of names lists hundreds of files once; a user's are looked at anew."""
    monkeypatch.setattr(catalog, "__file__", str(tmp_path / "distsim" / "catalog.py"))
    monkeypatch.chdir(tmp_path)
    listed: list[str] = []
    entries = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: listed.append(folder) or entries(folder))
    shipped = tmp_path / "presets"
    write(shipped, "one", alias="first")
    os.utime(shipped / "gpus", ns=(0, 0))  # clocks of disks are too coarse for what follows
    for _ in range(3):
        assert catalog.origin("gpus", "first") == "shipped" and not catalog.knows("gpus", "second")
        assert len(catalog.state("gpus")) == 1
    assert len(listed) == 1
    write(shipped, "two", alias="second")
    os.utime(shipped / "gpus", ns=(1, 1))
    assert catalog.knows("gpus", "second") and len(catalog.state("gpus")) == 2
    (shipped / "gpus" / "one.toml").unlink()
    assert not catalog.knows("gpus", "first")
    own = write(tmp_path / "own", "three", alias="third")
    monkeypatch.setenv("DISTSIM_PRESETS", str(tmp_path / "own"))
    assert catalog.knows("gpus", "third")
    own.write_text(own.read_text(encoding="utf-8").replace("third", "other"), encoding="utf-8")
    assert catalog.knows("gpus", "other") and not catalog.knows("gpus", "third")


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("paged_adamw_32bit", 8), ("paged_adamw", 8), ("adamw_bnb_32bit", 8), ("paged_adamw_8bit", 2.03125),
        ("adamw_torch_8bit", 2.03125), ("adamw_torch_4bit", 1.0625), ("paged_lion_32bit", 4), ("paged_lion", 4),
        ("lion_32bit", 4), ("paged_lion_8bit", 1.015625), ("adamw_apex_fused", 8),
        ("ademamix", 12), ("paged_ademamix_8bit", 3.046875), ("schedule_free_adamw", 8),
    ],
)  # fmt: skip
def test_optimizers_of_trainers_by_their_own_names(name: str, each: float) -> None:
    """transformers' names; bytes of states for each fp32 parameter (bitsandbytes, torchao, Apex)."""
    states = catalog.load("optimizers", name).states
    full = [
        4 if state.bytes_per_element is None else state.bytes_per_element for state in states if state.shape == "full"
    ]
    assert sum(full) == pytest.approx(each)


@pytest.mark.parametrize("name", ["grokadamw", "soap", "shampoo"])
def test_no_optimizer_of_other_states_is_suggested(name: str) -> None:
    with pytest.raises(DistsimError) as found:
        catalog.load("optimizers", name)
    assert "did you mean" not in str(found.value)


@pytest.mark.parametrize(("name", "meant"), [("adamww", "adamw"), ("adafctor", "adafactor"), ("rmsporp", "rmsprop")])
def test_slips_of_the_keys_in_optimizers_are(name: str, meant: str) -> None:
    with pytest.raises(DistsimError, match=f"did you mean {meant}"):
        catalog.load("optimizers", name)


def test_an_empty_preset_says_that_it_is_empty(tmp_path: Path) -> None:
    """Not which fifteen fields it lacks."""
    file = tmp_path / "mine.toml"
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(DistsimError, match=r"mine\.toml: is empty; a preset needs fields"):
        catalog.load("models", str(file))
