"""Sailor's measured profiles: layers by degree and micro-batch, and links between nodes."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planners.contestants import SIZES, TIMES
from tensoropt.runtime.support.errors import UserError

__all__ = ["Kind", "Layer", "Profiles", "Roads", "read_profiles"]

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Layer:
    """A measured layer on one GPU of a tensor group, for one micro-batch.

    ``kept_bytes`` are the activations that its backward pass needs. ``output_bytes`` pass to the
    next layer.
    """

    forward_s: float
    backward_s: float
    update_s: float
    parameters: int
    kept_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Roads:
    """Links between nodes, by the number of GPUs that send at the same time.

    A bandwidth in GB/s is a polynomial of the binary logarithm of megabytes, highest power first.
    """

    polynomials: Mapping[int, Sequence[float]]

    def send_s(self, size_bytes: float, gpus: int) -> float:
        """Return the time to send ``size_bytes`` bytes to an equal machine."""
        power = math.log2(size_bytes / 1e6)
        gigabytes_per_s = 0.0
        for factor in self.polynomials[gpus]:
            gigabytes_per_s = gigabytes_per_s * power + factor
        return size_bytes / 1e9 / gigabytes_per_s

    def sum_s(self, size_bytes: float, ranks: int, bucket_bytes: int) -> float:
        """Return the time to sum gradients on a ring of ``ranks`` GPUs, bucket by bucket."""
        if ranks == 1:
            return 0.0
        whole, rest = divmod(size_bytes, bucket_bytes)
        steps = 2 * (ranks - 1)
        full_s = self.send_s(bucket_bytes / ranks, 1) if whole else 0.0
        return steps * (whole * full_s + (self.send_s(rest / ranks, 1) if rest else 0.0))


@dataclass(frozen=True)
class Kind:
    """A kind of GPU: its measured layers by tensor degree and micro-batch, and its nodes."""

    layers: Mapping[tuple[int, int], Sequence[Layer]]
    gpus_per_node: int
    capacity_bytes: int


@dataclass(frozen=True)
class Profiles:
    """The profiles of a model on the kinds of GPU of a cluster, and the links between these.

    ``batch`` is the global batch, ``zone`` the place of all GPUs.
    """

    kinds: Mapping[str, Kind]
    roads: Mapping[tuple[str, str], Roads]
    batch: int
    zone: str

    @property
    def measured(self) -> list[tuple[int, int]]:
        """The pairs of tensor degree and micro-batch that were measured on all kinds."""
        known = [kind.layers for kind in self.kinds.values()]
        return [pair for pair in known[0] if all(pair in layers for layers in known)]

    def layers(self, gpu: str, tensor: int, micro_batch: int) -> Sequence[Layer]:
        return self.kinds[gpu].layers[tensor, micro_batch]


def read_profiles(planning: Path, training: str, gpus: Iterable[str]) -> Profiles:
    """Return the profiles of the model of a training configuration on kinds of GPU.

    ``planning`` is the folder of Sailor's planners. Raises :class:`UserError` with the file that
    cannot be read, or the first missing entry.
    """
    spec = _read(planning / "simulations/configs" / training)
    nodes = _read(planning / "simulations/configs/basic_cluster_config.json")
    times, sizes = _read(planning / TIMES), _read(planning / SIZES)
    links = _read(planning.parent / "providers/multizone_bandwidths_het.json")
    names = [*gpus]
    try:
        zone, model = nodes["zone"], spec["model"]
        kinds = {gpu: _kind(nodes[gpu], times[model][gpu], sizes[model]) for gpu in names}
        roads = {
            (gpu, other): _roads(links[zone][gpu], zone, other)
            for gpu, other in itertools.product(names, repeat=2)
        }
        return Profiles(kinds, roads, spec["global_batch_size"], zone)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f"{planning}: expected profiles of {spec.get('model')} on {', '.join(names)} as in "
            f"eth-easl/sailor, got: {type(error).__name__} {error}"
        ) from error


def _kind(node: Mapping[str, int], times: Mapping[str, Any], sizes: Mapping[str, Any]) -> Kind:
    layers = {
        (int(degree), int(batch)): _layers(sizes, int(degree), int(batch), rows)
        for batch, found in times.items()
        for degree, rows in found.items()
        if degree in sizes and int(degree) <= node["gpus_per_node"]
    }
    return Kind(layers, node["gpus_per_node"], node["mem_per_gpu"])


def _roads(links: Mapping[str, Any], zone: str, other: str) -> Roads:
    """Return the links between machines with equal numbers of GPUs."""
    ends = {count: between[zone].get(other, {}) for count, between in links.items()}
    return Roads({int(count): own[count][0] for count, own in ends.items() if count in own})


def _layers(
    sizes: Mapping[str, Any], degree: int, batch: int, rows: Mapping[str, Sequence[float]]
) -> list[Layer]:
    found = []
    for number in range(len(rows)):
        forward_s, backward_s, update_s = rows[str(number)]
        own, whole = sizes[str(degree)][str(number)], sizes["1"][str(number)]
        kept = own["act_mem_floats"] * batch * _FLOAT_BYTES
        output = whole["act_output_floats"] * batch * _FLOAT_BYTES
        found.append(Layer(forward_s, backward_s, update_s, own["params_floats"], kept, output))
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(
            f"{path}: expected a file of a whole checkout of eth-easl/sailor, got: {error.strerror}"
        ) from error
    except ValueError as error:
        raise UserError(f"{path}: expected JSON, got: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected a JSON object, got: {type(found).__name__}")
    return found
