"""What NVIDIA's software for MLPerf sets, whatever a table of its results says."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import replay, setup_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.steps.work import TILED_SHARE, without_tiles, work_of
from distsim.interop.runs import Run

DENSE = {"model": "llama-3.1-8b", "gpu": "b200-sxm", "n_gpus": "8", "seq_len": "8192", "tp": "1", "pp": "1", "cp": "1",
         "micro_batch": "2", "global_batch": "16", "framework": "nemo-mlperf"}  # fmt: skip
LARGE = {**DENSE, "model": "llama-3.1-405b", "gpu": "gb200", "n_gpus": "512", "tp": "4", "pp": "8", "cp": "2",
         "micro_batch": "1", "global_batch": "1152"}  # fmt: skip


def replayed(cells: dict[str, str], **more: str) -> Setup:
    return setup_of(Run({**cells, **more}, 1))


@pytest.mark.parametrize(
    ("cell", "recipe"), [("fp8", "fp8-parameters"), ("fp8-mx", "mxfp8-parameters"), ("nvfp4", "nvfp4-bf16-grads")]
)
def test_gradients_are_reduced_in_16_bits(cell: str, recipe: str) -> None:
    precision = replayed(DENSE, precision=cell).precision
    assert (precision.name, precision.reduce_dtype) == (recipe, "bf16")


def test_the_loss_is_fused_since_2025() -> None:
    years = {"2024": "vocab-parallel", "2025.67": "compiled", "2026": "one"}
    assert {year: replayed(DENSE, year=year).kernels.loss_kernel for year in years} == years


def test_chunks_of_two_layers_where_the_ends_count_as_layers() -> None:
    """126 layers, embedding and loss on eight stages of eight chunks."""
    assert replayed(LARGE).layout.vpp == 8
    assert replayed(LARGE, pp="9", n_gpus="576").layout.vpp == 14  # a layer each
    assert replayed(LARGE, global_batch="32").layout.vpp == 1  # too few micro-batches to interleave


def tensor_parallel_seconds(setup: Setup) -> float:
    return float(work_of(setup).stages[0].traffic["tp_forward"])


@pytest.mark.parametrize("notes", ["TP overlap off", "TP_COMM_OVERLAP False", "no TP communication overlap"])
def test_exchanges_apart_from_products_are_exposed_whole(notes: str) -> None:
    """The fitted factor is that of products that take in and send out tiles."""
    apart, tiled = (replayed(DENSE, tp="4", notes=words) for words in (notes, "TP communication overlap on"))
    assert tensor_parallel_seconds(apart) == pytest.approx(tensor_parallel_seconds(tiled) / TILED_SHARE)
    told, untold = (replayed(DENSE, tp="4", framework="megatron-lm", notes=words) for words in (notes, ""))
    assert tensor_parallel_seconds(told) == tensor_parallel_seconds(untold)


def test_cards_without_links_never_exchange_tiles() -> None:
    card = replayed(DENSE, gpu="l40s", tp="4", gpus_per_node="4")
    off = replayed(DENSE, gpu="l40s", tp="4", gpus_per_node="4", notes="TP overlap off")
    assert without_tiles(card) and tensor_parallel_seconds(card) == tensor_parallel_seconds(off)


def test_tiles_need_sharded_sequences_and_one_nvlink_domain() -> None:
    """NVIDIA/Megatron-LM arguments.py: --tp-comm-overlap happens only with --sequence-parallel. Qwen3 1.7B over two
    nodes' Ethernet takes 1.73 s a step (BastiaanGroot/ML-Infrastructure-Engineer), which had been 1.12."""
    apart = {"notes": "TP overlap off"}
    for cells in ({"sequence_parallel": "0"}, {"gpus_per_node": "2"}):
        told, own = (tensor_parallel_seconds(replayed(DENSE, tp="4", **cells, **more)) for more in (apart, {}))
        assert told == own
    assert without_tiles(replayed(DENSE, tp="4", sequence_parallel="0"))
    assert not without_tiles(replayed(DENSE, tp="4"))
    cells = {"model": "qwen3-1.7b", "gpu": "h200-sxm", "n_gpus": "2", "gpus_per_node": "1", "tp": "2", "pp": "1",
             "internode_gbps_per_gpu": "18.8", "micro_batch": "2", "global_batch": "2", "precision": "bf16",
             "sequence_parallel": "0", "seq_len": "4096", "framework": "megatron-bridge", "year": "2025",
             "notes": "Megatron-Bridge 0.1.0 recipes"}  # fmt: skip
    assert replay(Run({**cells, "id": "a"}, 1)).predicted_seconds == pytest.approx(1.73, rel=0.15)


def test_buckets_of_gradients_are_as_large_as_its_configs_say() -> None:
    traffic = replayed(DENSE).framework.traffic
    assert (traffic.bucket_elements, traffic.bucket_elements_per_rank) == (2**27, 1_000_000)
