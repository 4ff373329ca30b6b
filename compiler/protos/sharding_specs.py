"""Conversion between layouts and the sharding specs of ONNX's multi-device annotations.

A spec lists the devices of the shards of one tensor, in row-major order of the shards; a negative
entry stands for a group of devices that have the same shard (onnx.proto, ShardingSpecProto; ONNX
proposal "Multi-Device", since IR version 11).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import reduce

import onnx

from tensoropt.compiler.layout.layouts import reordered
from tensoropt.runtime.layout.layout import REPLICATE, Layout, split
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["IR_VERSION", "block_count", "layout_of", "shard_counts", "shard_devices", "spec_of"]

IR_VERSION = 11
"""The first version with annotations."""

Groups = tuple[tuple[int, ...], ...]
"""The devices of each shard."""


def spec_of(
    name: str, shape: Sequence[int | None], layout: Layout, mesh: Mesh
) -> onnx.ShardingSpecProto:
    """Return the spec of a tensor of ``shape`` in ``layout``, which must not be partial.

    A dimension of equal blocks counts as two merged dimensions. The second one is split. Blocks of
    unequal sizes have no spec.
    """
    spec = onnx.ShardingSpecProto(tensor_name=name)
    counts = _counts(layout, mesh)
    for number, group in enumerate(_groups(layout, counts, mesh), 1):
        if len(group) == 1:
            spec.device.append(group[0])
        else:
            spec.device.append(-number)
            spec.index_to_device_group_map.add(key=-number, value=group)
    for dim, count in counts.items():
        own, blocks = spec.sharded_dim.add(axis=dim), len(layout.blocks(dim)) or 1
        if blocks > 1:
            own.simple_sharding.add(num_shards=1).dim_value = blocks
        own.simple_sharding.add(num_shards=count).dim_value = (shape[dim] or 0) // blocks
    return spec


def layout_of(spec: onnx.ShardingSpecProto, rank: int, mesh: Mesh) -> Layout | None:
    """Return the layout on ``mesh`` that the valid ``spec`` describes; ``None`` if there is none.

    Devices are ignored if they are not listed, or if they are listed per device rather than per
    shard. Cost: the layouts of the split dimensions, in every order of axes.
    """
    counts = shard_counts(spec, rank)
    devices = shard_devices(spec)
    listed = devices if len(devices) == math.prod(counts.values()) else None
    options = [
        [REPLICATE] if extent == 1 else [REPLICATE, *map(split, counts)] for extent in mesh.shape
    ]
    plain = [Layout(placements) for placements in itertools.product(*options)]
    fitting = [layout for layout in plain if _counts(layout, mesh) == counts]
    for layout in (*fitting, *(other for own in fitting for other in reordered(own, mesh))):
        if listed in (None, _groups(layout, counts, mesh)):
            blocks = {dim.axis % rank: block_count(dim) for dim in spec.sharded_dim}
            return reduce(
                lambda own, dim: own.with_split(
                    split(dim, (1,) * blocks[dim] if blocks[dim] > 1 else ())
                ),
                counts,
                layout,
            )
    return None


def block_count(dim: onnx.ShardedDimProto) -> int:
    """Return the number of equal blocks that are each split, 1 for none."""
    simple = dim.simple_sharding
    is_blocked = len(simple) == 2 and simple[0].num_shards == 1 < simple[1].num_shards
    return max(1, simple[0].dim_value) if is_blocked else 1


def shard_counts(spec: onnx.ShardingSpecProto, rank: int) -> dict[int, int]:
    """Return the number of shards of each split dimension, in the order of the dimensions."""
    counts = {
        dim.axis % rank: math.prod(simple.num_shards for simple in dim.simple_sharding)
        for dim in spec.sharded_dim
    }
    return {dim: count for dim, count in sorted(counts.items()) if count > 1}


def shard_devices(spec: onnx.ShardingSpecProto) -> Groups:
    """Return the devices of each shard, in the order of the shards; empty if none are listed."""
    known = {entry.key: tuple(sorted(entry.value)) for entry in spec.index_to_device_group_map}
    return tuple(known.get(device, (device,)) for device in spec.device)


def _counts(layout: Layout, mesh: Mesh) -> dict[int, int]:
    dims = sorted({placement.dim for placement in layout.placements if placement.is_split})
    return {dim: layout.pieces(dim, mesh) for dim in dims if layout.pieces(dim, mesh) > 1}


def _groups(layout: Layout, counts: Mapping[int, int], mesh: Mesh) -> Groups:
    found: dict[tuple[int, ...], list[int]] = {
        at: [] for at in itertools.product(*(range(count) for count in counts.values()))
    }
    for rank in range(mesh.size):
        at = tuple(mesh.linear(rank, layout.axes_splitting(dim)) for dim in counts)
        found[at].append(rank)
    return tuple(map(tuple, found.values()))
