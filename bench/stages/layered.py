"""Training steps of models with equal layers, as other systems ran them in stages.

A model of three layers is planned with Megatron-LM's splits on the ranks that share a layer, and
`compiler/stages` adds up the costs of its chunks: the start, a layer and the end. The layers are
repeated as often as the published model has them, and the schedule that was run is executed with
these costs. So operators, collectives and schedules have the times of our plans, except for the
properties of the other `System`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from accuracy.gpu_plans import fastest_plan
from graphs.gpt import Gpt
from graphs.llama import Llama

from stages.systems import System, times_of
from stages.updates import Update
from tensoropt.compiler.api.model import Model
from tensoropt.compiler.api.training import Training, step_of
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.planning.pinned_search import pinned_graphs
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.graph import Argument, Graph
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.chunk_costs import Costs
from tensoropt.compiler.stages.devices import stage_link
from tensoropt.compiler.stages.families import FAMILIES, Family, generate
from tensoropt.compiler.stages.order import Order
from tensoropt.compiler.training.alternatives import INFERENCE
from tensoropt.runtime.stages.execution import ChunkCost, execute

__all__ = ["Degrees", "Prediction", "even_chunks", "predict"]

_LAYERS = 3  # of the model that is planned: the middle one is repeated
_MICRO_BATCHES = 2  # of the step that is planned, so that gradients are summed
_PINS = {
    Gpt: (
        "tokens.weight=S(0)", "layer*.qkv.weight=S(1)", "layer*.attention.out.weight=S(0)",
        "layer*.up.weight=S(1)", "layer*.down.weight=S(0)",
    ),
    # In long micro-batches a rank would gather weights that are only stored in parts.
    Llama: (
        "tokens.weight=S(0)", "node:layer*/attention/[qkv]/matmul=column", "out.weight=S(1)",
        "node:layer*/attention/out/matmul=row", "node:layer*/mlp/gate/matmul=column",
        "node:layer*/mlp/up/matmul=column", "node:layer*/mlp/down/matmul=row",
    ),
}  # fmt: skip
_BETWEEN = ("node:layer?/*norm*/*", "node:layer?/add", "node:layer?/add_1")
"""The nodes between the products of a layer."""


@dataclass(frozen=True)
class Degrees:
    """Degrees of tensor, data, pipeline and context parallelism, and micro-batches.

    ``layers`` of each chunk are without the start and the end of the model. Chunk ``n`` is on stage
    ``n`` modulo ``stages``. ``context`` ranks share the tokens of a text in a balanced order: the
    attention of a rank takes ``context`` times the time of a text with the rank's tokens alone. The
    exchange of keys and values takes no time.
    """

    tensor: int
    data: int
    stages: int
    layers: tuple[int, ...]
    micro_batch: int
    micro_batches: int
    context: int = 1

    @property
    def replicas(self) -> int:
        """The number of ranks that share the state of a part of a layer."""
        return self.data * self.context

    @property
    def chunks(self) -> int:
        """The number of chunks on each stage."""
        return len(self.layers) // self.stages

    @property
    def family(self) -> Family:
        """The schedule of Megatron-LM and of the systems after it."""
        if self.chunks == 1:
            return FAMILIES["1f1b"]
        return FAMILIES["interleaved"].with_chunks(self.chunks)


@dataclass(frozen=True)
class Prediction:
    """Time of a step and memory of its stages.

    Of the stage that ends last, ``pipeline_s`` is the time until its last backward pass has ended,
    ``exchange_s`` the time to exchange gradients and parameters that is not hidden.
    """

    pipeline_s: float
    exchange_s: float
    rest_s: float
    stage_bytes: tuple[int, ...]

    @property
    def time_s(self) -> float:
        return self.pipeline_s + self.exchange_s + self.rest_s

    @property
    def memory_bytes(self) -> int:
        """The memory of the fullest stage."""
        return max(self.stage_bytes)


@dataclass(frozen=True)
class _Part:
    """The costs of a part of a model on a rank, and its parameters there."""

    costs: Costs
    parameters: float

    @property
    def work_s(self) -> float:
        return self.costs.forward_s + self.costs.backward_s + self.costs.weights_s

    @classmethod
    def joined(cls, parts: Sequence[_Part]) -> _Part:
        costs = [own.costs for own in parts]
        return cls(
            Costs(
                sum(own.forward_s for own in costs),
                sum(own.backward_s for own in costs),
                sum(own.weights_s for own in costs),
                kept_bytes=sum(own.kept_bytes for own in costs),
                weights_bytes=sum(own.weights_bytes for own in costs),
                working_bytes=max(own.working_bytes for own in costs),
                gradient_bytes=max(own.gradient_bytes for own in costs),
            ),
            sum(own.parameters for own in parts),
        )


@dataclass(frozen=True)
class _Parts:
    start: _Part
    layer: _Part
    end: _Part

    @property
    def gathered(self) -> float:
        """The most parameters that replicas gather at a time: a layer and the next, and the ends.

        FSDP keeps the embedding and the last product in one group, which is gathered once.
        """
        return self.start.parameters + 2 * self.layer.parameters + self.end.parameters

    def chunks(self, layers: Sequence[int]) -> list[_Part]:
        found = []
        for number, count in enumerate(layers):
            begin = [self.start] if number == 0 else []
            end = [self.end] if number + 1 == len(layers) else []
            found.append(_Part.joined([*begin, *[self.layer] * count, *end]))
        return found


def even_chunks(layers: int, chunks: int) -> tuple[int, ...]:
    """Return the layers of each chunk, in parts of about equal size."""
    return tuple((n + 1) * layers // chunks - n * layers // chunks for n in range(chunks))


@cache
def _graph(model: Gpt | Llama, system: System) -> Graph:
    training = Training(
        loss="softmax-cross-entropy:scores,labels",
        precision=system.precision,
        recompute=system.recompute,
        micro_batches=_MICRO_BATCHES,
    )
    with system.attention_kept(), tempfile.TemporaryDirectory(prefix="tensoropt-") as folder:
        path = model.build("model").save(Path(folder))
        step = step_of(training, Request(devices=1, device="a100"))
        (graph,) = Model(path, {}).program(step).graphs.values()
    return graph


def _cuts(order: Order) -> list[int]:
    """Return the places at which the layers and the end of a model begin."""
    names = [order.graph.op(index).name for index in order.forward]
    layers = [f"layer{layer}/" for layer in range(_LAYERS)]
    inside = [[at for at, name in enumerate(names) if name.startswith(own)] for own in layers]
    return [*(min(places) for places in inside), max(inside[-1]) + 1]


@cache
def _point(
    model: Gpt | Llama, system: System, tensor: int, micro_batch: int, device: Device
) -> FrontierPoint:
    """Return the fastest plan of three layers for a micro-batch on ``tensor`` ranks."""
    dtype = "float32" if system.precision == "float32" else "float16"
    graph = _graph(replace(model, layers=_LAYERS, batch=micro_batch, dtype=dtype), system)
    if tensor > 1:
        how = "sequence" if system.splits_sequence else "replicate"
        pins = (*_PINS[type(model)], *(f"{nodes}={how}" for nodes in _BETWEEN))
        graph = pinned_graphs({INFERENCE: graph}, Request(mesh=str(tensor), pins=pins))[INFERENCE]
    return fastest_plan(graph, tensor, device)


@cache
def _parts(
    model: Gpt | Llama, system: System, tensor: int, micro_batch: int, device: Device
) -> _Parts:
    """Return the costs of the parts of a model for a micro-batch on ``tensor`` ranks."""
    point = _point(model, system.planned, tensor, micro_batch, device)
    graph = point.tables.graph
    times = times_of(point, system, device)
    cuts = _cuts(times.order)
    chunks, costs = times.order.home_chunks(cuts), times.step(cuts)
    parameters = [0.0] * len(costs)
    for (node, *_), size in times.static:
        own = graph.nodes[node]
        if isinstance(own, Argument) and own.state == "parameter":
            parameters[int(chunks[node])] += size / system.parameter_bytes
    scores = micro_batch * model.sequence * model.vocabulary // tensor
    costs[-1].working_bytes += system.more_scores * 4 * scores
    start, _, layer, _, end = map(_Part, costs, parameters)
    return _Parts(start, layer, end)


def predict(
    model: Gpt | Llama,
    system: System,
    degrees: Degrees,
    devices: Sequence[Sequence[Device]],
    family: Family | None = None,
) -> Prediction:
    """Return the time and the memory of a step, with the schedule of a family.

    ``devices`` has the kinds of device of each stage: the slowest replica sets the pace. The first
    of them describes the links between nodes.
    """
    model = replace(model, sequence=model.sequence // degrees.context)
    system = replace(system, attention_rate=system.attention_rate / degrees.context)
    own = family or degrees.family
    places = own.place(degrees.stages, degrees.chunks)
    slowest = _slowest(model, system, degrees, devices, places)
    parts = [part.costs for part in slowest]
    costs = _costs(model, system, degrees, parts, places, devices[0][0])
    found = execute(generate(own, degrees.stages, degrees.micro_batches, costs).schedule, costs)
    gathered = _parts(model, system, degrees.tensor, degrees.micro_batch, devices[0][0]).gathered
    ends, sizes = [], []
    for stage in range(degrees.stages):
        numbers = [number for number, place in enumerate(places) if place == stage]
        parameters = sum(slowest[number].parameters for number in numbers)
        replicas = degrees.tensor, degrees.replicas, parameters, gathered
        update = Update(system, *replicas, devices[0][0])
        hidden_s = (
            sum(costs[number].backward_s + costs[number].weights_s for number in numbers),
            sum(costs[number].forward_s for number in numbers),
        )
        times_s = found.ends_s[stage][-1], update.exchange_s(*hidden_s), update.rest_s
        ends.append(Prediction(*times_s, ()))
        sizes.append(update.static_bytes + found.peak_bytes[stage])
    return replace(max(ends, key=lambda end: end.time_s), stage_bytes=tuple(sizes))


def _slowest(
    model: Gpt | Llama,
    system: System,
    degrees: Degrees,
    devices: Sequence[Sequence[Device]],
    places: Sequence[int],
) -> list[_Part]:
    """Return each chunk on the slowest device of its stage."""
    kinds = {kind for own in devices for kind in own}
    known = {
        kind: _parts(model, system, degrees.tensor, degrees.micro_batch, kind) for kind in kinds
    }
    chunks = {kind: parts.chunks(degrees.layers) for kind, parts in known.items()}
    return [
        max((chunks[kind][number] for kind in devices[place]), key=lambda part: part.work_s)
        for number, place in enumerate(places)
    ]


def _costs(
    model: Gpt | Llama,
    system: System,
    degrees: Degrees,
    parts: Sequence[Costs],
    places: Sequence[int],
    device: Device,
) -> list[ChunkCost]:
    """Return the costs of chunks in a schedule; each rank of a stage sends its part of a tensor.

    Chunks that follow each other on one stage send nothing.
    """
    link = stage_link(device, degrees.stages, (degrees.replicas, degrees.tensor))
    elements = degrees.micro_batch * model.sequence * model.width / degrees.tensor
    item_bytes = 4 if system.precision == "float32" else 2
    message_s = link.send_s(elements * item_bytes)
    sent_s = [0.0 if here == there else message_s for here, there in pairwise(places)]
    found = []
    for own, before_s, after_s in zip(parts, [0.0, *sent_s], [*sent_s, 0.0], strict=True):
        waits_s = before_s + after_s if system.waits_for_sends else 0.0
        times = own.forward_s + waits_s, own.backward_s + waits_s, own.weights_s
        between_s = 0.0 if system.waits_for_sends else after_s
        sizes = own.kept_bytes, own.weights_bytes, own.working_bytes, own.gradient_bytes
        found.append(ChunkCost(*times, between_s, *sizes))
    return found
