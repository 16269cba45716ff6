"""A fitted network profile as text: lines per collective, factors per link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim import units

if TYPE_CHECKING:
    from distsim.engine.fitting.nccl_tests import Profile


def text(profile: Profile) -> str:
    """Latency and bandwidth of each collective and rank count, then the factors on NCCL's own arithmetic."""
    lines = ["collective      ranks  latency    bandwidth    samples  median error"]
    for one in profile.lines:
        rate = units.decimal_bytes(one.bytes_per_second, "B/s")
        latency = units.duration(one.latency_seconds)
        lines.append(f"{one.op:<14}  {one.ranks:>5}  {latency:<9}  {rate:<11}  {one.samples:>7}  {one.error:.1%}")
    lines += ["", "link                          short latency  long latency  bandwidth"]
    for key, factor in profile.factors.items():
        lines.append(f"{key:<30}{factor.low:>11.2f} x{factor.bulk:>12.2f} x{factor.bandwidth:>9.2f} x")
    return "\n".join(lines)
