"""What a framework can run: one layout is refused, a search leaves it out; tests/test_replays.py has measured runs."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.cli.app import run
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import resolve
from distsim.engine.layouts.bounds import Bounds
from distsim.engine.layouts.support import within
from distsim.engine.layouts.variants import parse_offloads
from distsim.errors import DistsimError
from distsim.specs.job import Job
from distsim.specs.layout import Layout
from distsim.specs.offloads import leaves, offload_words
from distsim.specs.support import Supports
from distsim.specs.support_rules import unsupported

SMALL = ("llama-7b", "--gpus", "8", "--global-batch", "32", "--recompute", "none", "--sequence-parallel", "on")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


def test_every_restriction_says_where_it_is_written() -> None:
    stated = 0
    for name in catalog.names("frameworks"):
        framework = catalog.load("frameworks", name)
        if framework.supports != Supports():
            stated += 1
            assert len(framework.source["supports"]) > 20, name
    assert stated >= 15


def test_the_table_of_the_docs_is_that_of_the_presets() -> None:
    page = (Path(__file__).parent.parent / "docs" / "search.md").read_text(encoding="utf-8")
    for name in catalog.names("frameworks"):
        s = catalog.load("frameworks", name).supports
        lacks = ", ".join(degree for degree in ("tp", "pp", "cp", "ep") if not getattr(s, degree)) or "–"
        piped = ", ".join(str(stage) for stage in s.zero if stage <= s.pipeline_zero) if s.pp else "–"
        schedules = (", ".join(s.schedules) if s.schedules else "any") if s.pp else "–"
        zero, offload = ", ".join(map(str, s.zero)), offload_words(s)
        row = f"| {name} | {lacks} | {zero} | {piped} | {schedules} | {offload} |"
        assert (row in page) == (s != Supports()), row


@pytest.mark.parametrize(
    ("framework", "options", "told"),
    [
        ("megatron-lm", {"zero": 2, "pp": 2}, "ZeRO 2 with 2 pipeline stages"),
        ("megatron-lm", {"zero": 3, "pp": 2}, "--zero 1 or less"),
        ("deepspeed", {"zero": 3, "pp": 2}, "ZeRO 3 with 2 pipeline stages"),
        ("torchtitan", {"model": "llama-3-8b", "tp": 16, "gpus": 16}, "valid degrees: 1, 2, 4, 8"),
        ("torchtune", {"model": "qwen2-1.5b", "tp": 4, "gpus": 4}, "does not replicate the 2 key-value heads"),
        ("torchtitan", {"model": "llama-3.2-1b", "pp": 2}, "whose head is tied to its embedding, but pp is 2"),
        ("deepspeed", {"pp": 2, "vpp": 2}, "interleaved-1f1b"),
        ("nanotron", {"zero": 2}, "has no ZeRO 2"),
        ("nanotron", {"zero": 1, "zero_group": 2}, "not over groups of 2"),
        ("nanotron", {"offload": "optimizer"}, "does not offload optimizer"),
        ("torchtune", {"pp": 2}, "no pipeline parallelism"),
        ("litgpt", {"tp": 2}, "no tensor parallelism"),
        ("llm-foundry", {"cp": 2, "seq": 2048}, "no context parallelism"),
        ("torchtitan", {"cp": 4, "seq": 2052}, "chunks per context parallel rank"),
        ("torch-ddp", {"zero": 3}, "has no ZeRO 3"),
        ("fsdp", {"offload": "optimizer"}, "use --zero 3 --offload optimizer+parameters"),
        ("fsdp", {"offload": "optimizer,activations"}, "use --zero 3 --offload optimizer+parameters+activations"),
        ("torchtitan", {"zero": 3, "offload": "parameters"}, "together, not one without the other"),
        ("torch-ddp", {"offload": "optimizer"}, "keeps optimizer states on each of 8 GPUs"),
        ("llm-foundry", {"offload": "optimizer"}, "it offloads: activations"),
        *(
            (name, {"model": "mixtral-8x7b", "tp": 2, "ep": 4, "sequence_parallel": False}, "add --sequence-parallel")
            for name in ("megatron-core", "megatron-lm", "megatron-bridge", "nemo")
        ),
        ("megatron-core", {"model": "mixtral-8x7b", "tp": 4, "etp": 2}, "use --ep 2 or more, or --etp 4"),
        *(
            (
                name,
                {"pp": 2, "vpp": 4, "recompute": "full", "recompute_layers": 5},
                "use --recompute-layers 8, which is 4",
            )
            for name in ("megatron-core", "megatron-lm", "megatron-bridge", "nemo", "megatron-2021")
        ),
    ],
)
def test_one_layout_is_refused_where_the_framework_is_named(framework: str, options: dict[str, Any], told: str) -> None:
    job = Job.read({"model": "llama-7b", "gpus": 8, "framework": framework, "global_batch": 32, **options})
    with pytest.raises(DistsimError) as error:
        resolve(job)
    assert told in error.value.text() and "source: " in error.value.text()


@pytest.mark.parametrize(
    ("framework", "options"),
    [
        ("megatron-lm", {"zero": 3}), ("megatron-lm", {"zero": 1, "pp": 2, "vpp": 2}),
        ("megatron-lm", {"pp": 2, "vpp": 4, "recompute": "full", "recompute_layers": 8}), ("deepspeed", {"zero": 3}),
        ("torchtitan", {"zero": 3, "pp": 2, "schedule": "zb-v"}), ("nanotron", {"pp": 2, "schedule": "gpipe"}),
    ],
)  # fmt: skip
def test_what_a_framework_runs_is_not_refused(framework: str, options: dict[str, Any]) -> None:
    resolve(Job(model="llama-7b", gpus=8, framework=framework, global_batch=32, **options))


@pytest.mark.parametrize("framework", ["megatron-core", "megatron-bridge"])
def test_megatron_gathers_heads_of_keys_where_no_gate_goes_with_queries(framework: str) -> None:
    """core 0.16: the gate is not cut to a rank's heads."""
    job = {"gpus": 16, "tp": 4, "framework": framework, "seq": 4096}
    assert resolve(Job(model="chatglm3-6b", **job)).layout.tp == 4
    with pytest.raises(DistsimError, match="does not replicate the 2 key-value heads of qwen3-next-80b-a3b"):
        resolve(Job(model="qwen3-next-80b-a3b", **job))


def test_searches_and_advice_recompute_as_many_layers_of_each_chunk_as_megatron_can() -> None:
    """Plans told to recompute one layer of a stage of ten chunks, for which Megatron has no number."""
    asked = {"model": "llama-2-13b", "gpu": "a100-sxm4-40gb", "gpus": 16, "global_batch": 64, "micro_batch": 1}
    found = distsim.search(**asked, tp=2, pp=4, vpp=5, zero=1, recompute="full", top=50, all_ranks=True)
    counts = {one.report.setup.layout.recompute_layers for one in found.best}
    assert counts and counts <= {5, -1}
    lacking = {"tp": 2, "pp": 4, "vpp": 5, "seq": 8192}
    told = [one.flags for one in distsim.advise(distsim.memory(**asked, **lacking)) if "recompute_layers" in one.flags]
    assert all(one["recompute_layers"] % 5 == 0 for one in told)


def test_a_stage_that_shards_nothing_is_no_matter() -> None:
    resolve(Job(model="llama-7b", gpus=8, framework="nanotron", tp=8, zero=3))


def test_a_profile_that_nobody_named_refuses_nothing() -> None:
    assert distsim.memory(Job(model="llama-7b", gpus=8, pp=2, zero=3)).peak > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"zero": 3, "pp": 2}, "megatron-core does not run ZeRO 3 with 2 pipeline stages"),
        ({"pp": 4, "schedule": "zb-h1"}, "megatron-core has no pipeline schedule zb-h1"),
        ({"zero": 3, "offload": "parameters"}, "megatron-core does not offload parameters"),
    ],
)
def test_what_a_profile_that_nobody_named_would_refuse_is_told(options: dict[str, Any], told: str) -> None:
    note = f"{told}; computed anyway, as no --framework is given"
    for command in (distsim.memory, distsim.step, distsim.comm):
        report = command("llama-7b", gpus=16, **options)
        assert report.to_dict()["notes"].count(note) == 1
        assert not any(one.startswith(told) for one in command("llama-7b", gpus=16).to_dict()["notes"])
    with pytest.raises(DistsimError, match=told):
        distsim.memory("llama-7b", gpus=16, framework="megatron-core", **options)


@pytest.mark.parametrize("framework", ["megatron-core", "deepspeed", "nanotron", "torchtitan", "llm-foundry"])
def test_a_search_holds_exactly_what_is_supported(framework: str, tmp_path: Path) -> None:
    spec = catalog.load("frameworks", framework)
    Path("free.toml").write_text(f'based_on = "{framework}"\nwithout = ["supports"]\n', encoding="utf-8")
    assert run(["search", *SMALL, "--framework", framework, "--all", "some.csv", "--json"]) == 0
    assert run(["search", *SMALL, "--framework", "free.toml", "--all", "every.csv", "--json"]) == 0
    fields = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "zero_group", "micro_batch", "micro_batches",
              "sequence_parallel", "schedule")  # fmt: skip
    rows = []
    for file in ("some.csv", "every.csv"):
        with open(file, encoding="utf-8") as lines:
            rows.append([tuple(row[name] for name in fields) for row in csv.DictReader(lines)])
    numbers = [
        Layout(**{name: value if name == "schedule" else int(value) for name, value in zip(fields, row, strict=True)},
               seq=2048) for row in rows[1]
    ]  # fmt: skip
    model = load_model("llama-7b").spec
    able = [row for row, one in zip(rows[1], numbers, strict=True) if not unsupported(spec.supports, model, one)]
    assert sorted(able) == sorted(rows[0]) and len(able) < len(rows[1])


@pytest.mark.parametrize("framework", ["megatron-2021", "fsdp", "llm-foundry", "megatron-core", "nanotron"])
def test_what_bounds_leave_out_is_what_rules_refuse(framework: str) -> None:
    """On several data parallel ranks: on one, any stage of ZeRO is as good as none."""
    setup = resolve(Job(model="llama-3-8b", framework=framework, gpus=8))
    dimensions: dict[str, tuple[int | str, ...]] = {
        "tp": (1, 2, 16), "cp": (1, 2), "pp": (1, 2), "zero": (0, 1, 2, 3), "schedule": ("1f1b", "zb-v"),
    }  # fmt: skip
    for pp, (name, values) in itertools.product((1, 2), dimensions.items()):
        able = within(Bounds(), setup, pp)
        for value in values:
            layout = Layout(**{"pp": pp, "dp": 2, "zero_group": 2, name: value})
            broken = unsupported(setup.framework.supports, setup.model, layout)
            about = [rule for rule in broken if rule.dimensions in ((name,), (name, "pp"))]
            assert able.allows(name, value) is not bool(about), (pp, name, value)


def test_a_search_trains_experts_with_tensor_parallelism_under_sequence_parallelism() -> None:
    words = ("search", "olmoe-1b-7b", "--gpus", "8", "--global-batch", "32", "--recompute", "none", "--json")
    for more in ((), ("--framework", "megatron-core")):
        assert run([*words, *more, "--all", "some.csv"]) == 0
        with open("some.csv", encoding="utf-8") as lines:
            rows = [*csv.DictReader(lines)]
        found = {(row["tp"], row["sequence_parallel"]) for row in rows}
        assert {("1", "0"), ("2", "1")} <= found and ("2", "0") not in found
        assert {row["etp"] == row["tp"] for row in rows if row["ep"] == "1"} == {True}


def test_a_search_lets_experts_without_sequence_parallelism_through_that_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("search", "olmoe-1b-7b", "--gpus", "8", "--global-batch", "32", "--recompute", "none", "--tp", "2")
    assert run([*words, "--sequence-parallel", "off", "--json"]) == 0
    assert "computed anyway" in json.loads(capsys.readouterr().out)["notes"][-1]
    assert run([*words, "--sequence-parallel", "off", "--framework", "megatron-core"]) == 2
    assert "only under sequence parallelism" in capsys.readouterr().err


def test_a_search_says_what_it_left_out_or_let_through(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--zero", "1,3", "--pp", "2", "--schedule", "1f1b")
    assert run(["search", *SMALL, *words, "--framework", "nanotron", "--json"]) == 0
    assert "has no ZeRO 3: left out" in json.loads(capsys.readouterr().out)["notes"][-1]
    assert run(["search", *SMALL, *words, "--zero", "3", "--json"]) == 0
    assert "computed anyway" in json.loads(capsys.readouterr().out)["notes"][-1]
    assert run(["search", *SMALL, "--zero", "3", "--pp", "2", "--framework", "deepspeed"]) == 2
    told = capsys.readouterr().err
    assert "deepspeed does not run ZeRO 3 with 2 pipeline stages" in told and "would allow: 0, 1" in told


def test_an_optimizer_in_host_memory_without_its_parameters_is_for_one_gpu_in_torch() -> None:
    """torch's CPUOffload moves both; torchao's optimizer is for a single GPU, DeepSpeed's and Megatron's are not."""
    for name, alone in (("fsdp", False), ("torch-ddp", False), ("deepspeed", True), ("megatron-core", True)):
        supports = catalog.load("frameworks", name).supports
        assert leaves(supports, ("optimizer",), 8) is alone and leaves(supports, ("optimizer",), 1)
        assert leaves(supports, ("activations",), 8)
    supports = catalog.load("frameworks", "fsdp").supports
    assert leaves(supports, ("optimizer", "parameters"), 8) and not leaves(supports, ("parameters",), 1)
    tried = parse_offloads("all", Job(model="llama-7b", framework="fsdp", gpus=8))
    assert tried == ("none", "activations", "optimizer,parameters", "optimizer,parameters,activations")
    resolve(Job(model="llama-7b", framework="torch-ddp", gpus=1, offload="optimizer"))


def test_a_rule_with_a_source_of_its_own_shows_that_alone() -> None:
    """A paragraph on schedules and ZeRO had stood under a sentence on experts."""
    with pytest.raises(DistsimError) as told:
        distsim.memory("mixtral-8x7b", gpus=8, tp=2, sequence_parallel=False, framework="megatron-core")
    sources = [hint for hint in told.value.hints if hint.startswith("source: ")]
    assert len(sources) == 1 and "moe_layer.py" in sources[0] and "schedules.py" not in sources[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, True), ({"precision": "fp16"}, True), ({"zero": 2}, False), ({"precision": "pure-bf16"}, False),
        ({"precision": "amp-bf16"}, False), ({"lora_rank": 8}, False), ({"framework": "megatron-core"}, False),
    ],
)  # fmt: skip
def test_trainer_has_no_master_copy_of_its_own(options: dict[str, Any], told: bool) -> None:
    """12 bytes of states for each 16-bit parameter are DeepSpeed's and Megatron's; the advice in the note is taken."""
    job: dict[str, Any] = {"model": "llama-3.2-1b", "framework": "huggingface", "gpus": 8, **options}
    assert any("no fp32 master copy" in note for note in distsim.memory(**job).setup.notes) == told


def test_zero_of_one_gpu_saves_nothing_and_costs_hooks() -> None:
    """The note speaks of states alone: DeepSpeed's hooks of ZeRO 3 take their time on one GPU too."""
    job: dict[str, Any] = {
        "model": "llama-3.2-1b",
        "framework": "huggingface",
        "gpus": 1,
        "seq": 512,
        "precision": "pure-bf16",
    }
    plain, sharded = distsim.step(**job), distsim.step(**job, zero=3)
    states = [sum(report.memory.worst.states[:3]) for report in (plain, sharded)]
    assert sharded.seconds > plain.seconds and states[0] == states[1]
    assert any("ZeRO 3 saves nothing" in note for note in sharded.setup.notes)


def test_ddp_replicates_whole_models() -> None:
    """It cuts neither layers nor sequences: a search proposes no such layout, and a stated one is refused."""
    for degree in ("tp", "pp", "cp"):
        with pytest.raises(DistsimError, match="torch-ddp"):
            distsim.memory(model="llama-7b", gpus=8, framework="torch-ddp", **{degree: 2})


def test_transformers_context_parallelism_is_fsdp2s() -> None:
    """accelerate raises without FSDP2; DeepSpeed's Ulysses goes with any stage."""
    job = {"model": "qwen3-8b", "gpu": "h100-sxm", "gpus": 4, "cp": 4, "seq": 8192, "global_batch": 8}
    for framework in ("huggingface", "trl"):
        for zero in (0, 1):
            with pytest.raises(DistsimError, match=r"context parallelism by all_gather only with ZeRO 2, 3 \(FSDP2\)"):
                distsim.step(**job, framework=framework, zero=zero)
            assert distsim.step(**job, framework=framework, zero=zero, cp_mode="all_to_all").seconds
        assert distsim.step(**job, framework=framework, zero=3).seconds
    found = distsim.search("qwen3-8b", gpu="h100-sxm", gpus=4, seq=8192, global_batch=8, framework="trl", cp=2)
    assert found.best and all(one.report.setup.layout.zero >= 2 for one in found.best)


@pytest.mark.parametrize("framework", ["axolotl", "llama-factory", "ms-swift"])
def test_trainers_with_context_parallelism_of_their_own_trade_heads(framework: str) -> None:
    """Ulysses first, whatever shards the rest; only axolotl leaves a ring to accelerate, without DeepSpeed."""
    job = {"model": "qwen3-8b", "gpu": "h100-sxm", "gpus": 4, "cp": 4, "seq": 8192, "global_batch": 8}
    for zero in (0, 1, 2, 3):
        assert distsim.step(**job, framework=framework, zero=zero).setup.layout.cp_mode == "all_to_all"
        if framework == "axolotl" and zero == 1:
            with pytest.raises(DistsimError, match=r"by ring only with ZeRO 0, 2, 3 \(FSDP2\)"):
                distsim.step(**job, framework=framework, zero=zero, cp_mode="ring")
        else:
            assert distsim.step(**job, framework=framework, zero=zero, cp_mode="ring").seconds


def test_axolotl_divides_key_value_heads() -> None:
    """More context parallel ranks than these take a ring."""
    job = {"model": "qwen3-8b", "gpu": "h100-sxm", "gpus": 16, "cp": 16, "seq": 8192, "global_batch": 8}
    with pytest.raises(DistsimError, match="axolotl does not copy key-value heads"):
        distsim.step(**job, framework="axolotl", zero=3)
    assert distsim.step(**job, framework="axolotl", zero=3, cp_mode="ring").seconds
    assert distsim.step(**job, framework="ms-swift", zero=3).seconds


@pytest.mark.parametrize(
    ("framework", "precision", "told"),
    [
        ("deepspeed", "nvfp4", True), ("huggingface", "mxfp8", True), ("nanotron", "nvfp4", True),
        ("deepspeed", "fp8", False), ("megatron-core", "nvfp4", False), ("megatron-bridge", "mxfp8", False),
        ("nemo", "nvfp4", False), ("torchtitan", "mxfp8", False), ("maxtext", "mxfp8", False), (None, "nvfp4", False),
    ],
)  # fmt: skip
def test_formats_of_scaled_blocks_that_no_switch_brings_are_told(
    framework: str | None, precision: str, told: bool
) -> None:
    job = {"model": "llama-3-8b", "gpu": "b200-sxm", "gpus": 8, "seq": 2048, "precision": precision}
    report = distsim.step(**job, **({"framework": framework} if framework else {}))
    assert any("has no switch for --precision" in note for note in report.notes) is told
