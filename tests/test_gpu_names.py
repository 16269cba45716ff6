"""Names of accelerators and models as people write them, for --gpu and in tables; ambiguous ones are refused."""

from __future__ import annotations

import pytest

from distsim import catalog
from distsim.cli.app import run as cli
from distsim.engine.evidence import Replay, replay
from distsim.errors import DistsimError
from distsim.interop.runs import MissingCell, Run
from distsim.interop.runs.models import model_of

BLANK_SHAPE = {"seq_len": "2048", "micro_batch": "1", "global_batch": "512", "zero_stage": "1", "pp": "1"}
ROW = {"id": "a", "model": "llama-3-8b", "tp": "2", "framework": "megatron-core", "recompute": "full", "n_gpus": "16",
       **BLANK_SHAPE}  # fmt: skip
TPU = {"framework": "maxtext", "tp": "1"}


def _replay(gpu: str, **cells: str) -> Replay:
    return replay(Run({**ROW, "gpu": gpu, **cells}, 2))


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("A800-SXM", "a800-sxm4-80gb"), ("A800-80G", "a800-sxm4-80gb"), ("H800-SXM5", "h800-sxm"),
        ("H800-SXM5-80GB", "h800-sxm"), ("A100-40G", "a100-sxm4-40gb"), ("A100 80G", "a100-sxm4-80gb"),
        ("A100-40G PCIe", "a100-pcie-40gb"), ("DGX A100", "a100-sxm4-80gb"), ("HGX H100", "h100-sxm"),
        ("Gaudi 2", "gaudi2"), ("Intel Gaudi-3", "gaudi3"), ("Ascend910B2", "ascend-910b2"),
        ("Ascend910B3", "ascend-910b"), ("TPUv5e", "tpu-v5e"), ("TPU v6 (Trillium)", "tpu-v6e"),
        ("AWS Trainium2", "trainium2"), ("H100 (PCIe)", "h100-pcie"), ("A100 (40GB)", "a100-sxm4-40gb"),
        ("AMD Instinct MI300X OAM", "mi300x"), ("MI300X 192GB", "mi300x"), ("RTX4090", "rtx-4090"),
        ("RTX 4090 24GB", "rtx-4090"), ("B200 192GB", "b200-sxm"), ("H200-SXM5-141GB", "h200-sxm"),
        ("H100 SXM5 94GB", "h100-sxm-94gb"), ("A100-SXM-64GB", "a100-sxm4-64gb"), ("H100 64GB", "h100-sxm-64gb"),
        ("TPU v7", "tpu-v7x"), ("tpu-ironwood", "tpu-v7x"), ("TPU Trillium", "tpu-v6e"), ("DGXH200", "h200-sxm"),
        ("rtx-pro-6000-server", "rtx-pro-6000"), ("HL-325L", "gaudi3"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("RTX PRO 6000 Blackwell Max-Q", "rtx-pro-6000-max-q"), ("AMD Instinct MI300X VF", "mi300x"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"), ("Intel(R) Data Center GPU Max 1550", "max-1550"),
        ("NVIDIA DGX Spark", "gb10"), ("RTX 4090D", "rtx-4090-d"), ("NVIDIA GeForce RTX 4090 D", "rtx-4090-d"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx-3080-ti"),
    ],
)  # fmt: skip
def test_other_spellings_of_gpus(told: str, name: str) -> None:
    assert catalog.load("gpus", told).name == name
    found = _replay(told)
    assert found.setup is not None and found.setup.accelerator.name == name
    assert "read as" not in found.assumed


@pytest.mark.parametrize(
    "told",
    ["RTX 5090D", "RTX PRO 4000 Blackwell SFF Edition", "GB200-NVL36", "A800 40GB", "ironwood-256",
     "910B1", "910B4", "Trainium", "TPU v5", "V100-SXM", "RTX 6000", "L40 24GB", "A100 30GB", "H100-PCIe-94GB",
     "A100-SXM5", "H100-SXM4", "A30-SXM", "H100 (A100)", "A100 (p5)", "A100 (30GB)", "H100 (v2)", "v100-32", "8x",
     "40GB", "()", "a" + "-8gb" * 900, "x8 " * 900],
    ids=lambda told: told[:20],
)  # fmt: skip
def test_what_might_be_several_or_none_is_refused(told: str) -> None:
    assert not catalog.knows("gpus", told)
    assert "unknown gpu" in _replay(told).reason


@pytest.mark.parametrize(
    ("told", "near"), [("Trainium", "trainium2"), ("TPU v5", "tpu-v5p"), ("910B4", "910b, 910b2, ")]
)
def test_what_was_refused_may_have_meant(told: str, near: str) -> None:
    with pytest.raises(DistsimError) as refused:
        catalog.load("gpus", told)
    assert near in refused.value.hints[0]


@pytest.mark.parametrize("told", ["8xH100", "v5e-256", "p5.48xlarge", "H100 (p5)"])
def test_a_name_that_says_more_than_a_chip_is_none_for_the_command_line(
    told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would drop the count or the network without a word."""
    assert cli(["memory", "llama-7b", "--gpu", told]) == 2
    error = capsys.readouterr().err
    assert "unknown gpu" in error and ("--cluster p5.48xlarge" in error) == ("p5" in told)
    assert ("--gpus" in error) == ("p5" not in told)


@pytest.mark.parametrize(
    ("told", "gpu", "cluster"),
    [
        ("p5.48xlarge", "h100-sxm", "p5.48xlarge"), ("p4d.24xlarge", "a100-sxm4-40gb", "p4d.24xlarge"),
        ("a3-highgpu-8g", "h100-sxm", "a3-highgpu-8g"), ("H100 (p5)", "h100-sxm", "p5.48xlarge"),
        ("trn2.48xlarge", "trainium2", "trn2.48xlarge"), ("DGX-2", "v100-sxm3-32gb", "dgx-2"),
    ],
)  # fmt: skip
def test_a_cluster_in_the_cell_gives_its_node(told: str, gpu: str, cluster: str) -> None:
    found = _replay(told, zero_stage="3")
    assert found.setup is not None, found.reason
    assert (found.setup.accelerator.name, found.setup.cluster.name) == (gpu, cluster)
    assert f"gpu {told!r} read as {gpu} in {cluster}, n_gpus as 16" in found.assumed


@pytest.mark.parametrize(
    ("told", "gpu", "count"),
    [("v5e-256", "tpu-v5e", 256), ("v6e-256", "tpu-v6e", 256), ("TPU v5p-256", "tpu-v5p", 128),
     ("v5litepod-256", "tpu-v5e", 256), ("v4-128", "tpu-v4", 64),
     ("tpu7x-128", "tpu-v7x", 64), ("tpu7x-4x4x8", "tpu-v7x", 128), ("v5p-8X8x8", "tpu-v5p", 512),
     ("v6e-16x16", "tpu-v6e", 256)],
)  # fmt: skip
def test_slices_of_tpus_say_how_many(told: str, gpu: str, count: int) -> None:
    """Up to v5p by TensorCores, two a chip; topologies by chips."""
    for cells, chips in (({"n_gpus": ""}, count), ({"n_gpus": "512"}, 512)):
        found = _replay(told, **TPU, **cells)
        assert found.setup is not None, found.reason
        assert (found.setup.accelerator.name, found.setup.layout.gpus) == (gpu, chips)
        assert f"gpu {told!r} read as {gpu}, n_gpus as {chips}" in found.assumed


def test_so_many_of_a_gpu() -> None:
    for told, count in (("8xH100", 8), ("16 × H100", 16), ("H100x32", 32)):
        found = _replay(told, n_gpus="")
        assert found.setup is not None and found.setup.layout.gpus == count
        assert f"gpu {told!r} read as h100-sxm, n_gpus as {count}" in found.assumed
    assert _replay("p5.48xlarge", n_gpus="").reason == "n_gpus is blank"
    assert "gpu 'H100 (AWS)' read as h100-sxm" in _replay("H100 (AWS)").assumed


@pytest.mark.parametrize(
    ("told", "name"),
    [("llama3_1_405b", "llama-3.1-405b"), ("LLaMA2-34B", "llama-2-34b"), ("Qwen3 235B", "qwen3-235b-a22b"),
     ("qwen2.5_7b", "qwen2.5-7b"), ("gpt3 13b", "gpt3-13b"), ("gpt-3-1.3b", "gpt3-1.3b"),
     ("deepseek3-671b", "deepseek-v3"), ("llama4-17b-128e", "llama-4-maverick"), ("llama4-17b-16e", "llama-4-scout")],
)  # fmt: skip
def test_models_by_other_marks(told: str, name: str) -> None:
    assert model_of(Run({"model": told}, 2)).name == name


@pytest.mark.parametrize("told", ["llama", "gpt-31-3b", "InternLM 21B", "ESM9b", "qwen3", "--"])
def test_other_words_are_no_model(told: str) -> None:
    with pytest.raises(MissingCell, match="not a preset"):
        model_of(Run({"model": told}, 2))


@pytest.mark.parametrize(
    ("told", "notes", "name"),
    [
        ("a100-sxm4-80gb", "Leonardo Booster: 4 custom A100 a node", "a100-sxm4-64gb"),
        ("h100-sxm", "MareNostrum 5 ACC, 4 NDR200 a node", "h100-sxm-64gb"),
        ("h100-sxm", "MN5", "h100-sxm-64gb"),
        ("a100-sxm4-80gb", "MareNostrum 5", "a100-sxm4-80gb"),
        ("h100-pcie", "MareNostrum 5", "h100-pcie"),
        ("h100-sxm", "", "h100-sxm"),
    ],
)
def test_machines_that_have_a_part_of_their_own(told: str, notes: str, name: str) -> None:
    """Both have four stacks of memory where the usual part has five: a quarter to a half less bandwidth."""
    setup = _replay(told, notes=notes).setup
    assert setup is not None and setup.accelerator.name == name
    assert (setup.cluster.gpus_per_node == 4) == name.endswith("64gb")


def test_fewer_stacks_of_memory_are_slower() -> None:
    for part, usual in (("a100-sxm4-64gb", "a100-sxm4-80gb"), ("h100-sxm-64gb", "h100-sxm-94gb")):
        assert catalog.load("gpus", part).bandwidth < 0.85 * catalog.load("gpus", usual).bandwidth
