"""Parts that most models, frameworks and chips do not have: fields name them, and only where one is stated is its spec
loaded and built (start-up)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distsim.specs.architecture import Architecture as Architecture
    from distsim.specs.block_indexer import BlockIndexer as BlockIndexer
    from distsim.specs.compressed import CompressedAttention as CompressedAttention
    from distsim.specs.disentangled import Disentangled as Disentangled
    from distsim.specs.experts import Experts as Experts
    from distsim.specs.grouped_kernels import GroupedKernels as GroupedKernels
    from distsim.specs.inputs import Frames as Frames
    from distsim.specs.inputs import Patches as Patches
    from distsim.specs.inputs import TextTower as TextTower
    from distsim.specs.latent import LatentAttention as LatentAttention
    from distsim.specs.layer_shapes import GlobalAttention as GlobalAttention
    from distsim.specs.layer_shapes import LayerInputs as LayerInputs
    from distsim.specs.layer_shapes import LayerSizes as LayerSizes
    from distsim.specs.layer_shapes import SharedKeys as SharedKeys
    from distsim.specs.layer_shapes import Streams as Streams
    from distsim.specs.mixers import DeltaNet as DeltaNet
    from distsim.specs.mixers import Lightning as Lightning
    from distsim.specs.mixers import LinearRecurrence as LinearRecurrence
    from distsim.specs.mixers import Mamba as Mamba
    from distsim.specs.mixers import ShortConvolution as ShortConvolution
    from distsim.specs.ngrams import NGrams as NGrams
    from distsim.specs.scripts import ChosenLayout as ChosenLayout
    from distsim.specs.scripts import Remat as Remat
    from distsim.specs.scripts import Script as Script
    from distsim.specs.tiers import Tier as Tier
    from distsim.specs.tower import Tower as Tower
    from distsim.specs.windowed import Windowed as Windowed
else:
    from distsim.specs.base import later

    Architecture = later("architecture", "Architecture")
    BlockIndexer = later("block_indexer", "BlockIndexer")
    CompressedAttention = later("compressed", "CompressedAttention")
    Disentangled = later("disentangled", "Disentangled")
    Experts = later("experts", "Experts")
    GroupedKernels = later("grouped_kernels", "GroupedKernels")
    Frames = later("inputs", "Frames")
    Patches = later("inputs", "Patches")
    TextTower = later("inputs", "TextTower")
    LatentAttention = later("latent", "LatentAttention")
    GlobalAttention = later("layer_shapes", "GlobalAttention")
    LayerInputs = later("layer_shapes", "LayerInputs")
    LayerSizes = later("layer_shapes", "LayerSizes")
    SharedKeys = later("layer_shapes", "SharedKeys")
    Streams = later("layer_shapes", "Streams")
    DeltaNet = later("mixers", "DeltaNet")
    Lightning = later("mixers", "Lightning")
    LinearRecurrence = later("mixers", "LinearRecurrence")
    Mamba = later("mixers", "Mamba")
    ShortConvolution = later("mixers", "ShortConvolution")
    NGrams = later("ngrams", "NGrams")
    ChosenLayout = later("scripts", "ChosenLayout")
    Remat = later("scripts", "Remat")
    Script = later("scripts", "Script")
    Tier = later("tiers", "Tier")
    Tower = later("tower", "Tower")
    Windowed = later("windowed", "Windowed")
