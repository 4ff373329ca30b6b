"""Entries of plan.json for a training step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TypedDict

from tensoropt.compiler.exporter.plan.describe import (
    ModuleRows,
    describe_module,
    described_tensors,
    dtype_of,
)
from tensoropt.compiler.training.cut import Parts, argument_names, result_names
from tensoropt.compiler.training.spec import Loss, TrainingSpec
from tensoropt.dialects import onnx
from tensoropt.dialects.build import shape_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.plan.entries import TensorEntry

__all__ = ["Described", "describe_step"]


class HyperRow(TypedDict):
    """An argument with a hyperparameter, such as the learning rate."""

    name: str
    role: str
    dtype: str


class StateRow(TensorEntry):
    """A state tensor of the step, and the result with its next value."""

    kind: str
    of: str | None
    result: str


class GradientRow(TypedDict):
    """A gradient that the update reads."""

    of: str
    dtype: str
    shape: list[int | None]
    layout: list[str]


@dataclass(frozen=True)
class Described:
    """A training step before partitioning, with global shapes and layouts.

    ``model`` are the entries that every plan has. ``state`` and ``hyper`` are the arguments that
    only a training step has, ``gradients`` the gradients that its update reads, and
    ``accumulators`` their sums over micro-batches, by parameter. ``classes`` is the number of
    classes of the labels.
    """

    model: ModuleRows
    state: list[StateRow]
    hyper: list[HyperRow]
    gradients: list[GradientRow]
    accumulators: Mapping[str, str]
    classes: int | None

    def entries(self, spec: TrainingSpec, parts: Parts, start: str) -> dict[str, object]:
        """Return the entries of plan.json for the graphs ``parts``.

        ``start`` is the source of parameters and buffers: "weights" or "checkpoint".
        """
        own = _Graphs(parts)
        loss, *weights = self.model["outputs"]
        training: dict[str, object] = {
            "loss": self._loss(spec.loss),
            "optimizer": asdict(spec.optimizer),
            "micro_batches": spec.micro_batches,
            "clip_norm": spec.clip_norm,
            "precision": spec.precision,
            "recompute": spec.recompute,
            "start": start,
            "hyper": [{**row, "graphs": own.readers(row["name"])} for row in self.hyper],
            "state": [
                {
                    **{key: row[key] for key in ("name", "kind", "of", "result")},
                    "graph": own.writer(row["result"]),
                    "read_by": own.readers(row["name"]),
                    **{key: row[key] for key in ("dtype", "shape", "layout")},
                }
                for row in self.state
            ],
            "gradients": [
                {
                    "name": parts.names[row["of"]],
                    "of": row["of"],
                    "accumulator": self.accumulators.get(row["of"]),
                    **{key: row[key] for key in ("dtype", "shape", "layout")},
                }
                for row in self.gradients
            ],
            "loss_output": loss["name"],
        }
        if spec.groups:
            training["groups"] = [asdict(group) for group in spec.groups]
        if weights:
            training["weight_output"] = weights[0]["name"]
        return {**self.model, "training": training}

    def _loss(self, loss: Loss) -> dict[str, object]:
        entry = {"kind": loss.kind, "output": loss.output, "labels": loss.labels}
        if not loss.counts_labels:
            return {**entry, "classes": self.classes}
        return {
            **entry,
            "classes": self.classes,
            "ignore_index": loss.ignore_index,
            "label_smoothing": loss.label_smoothing,
            "class_weights": list(loss.class_weights),
        }


class _Graphs:
    """Readers and writers of tensors among the graphs."""

    def __init__(self, parts: Parts) -> None:
        self.arguments = {name: set(argument_names(m)) for name, m in parts.modules.items()}
        self.results = {name: set(result_names(m)) for name, m in parts.modules.items()}

    def readers(self, name: str) -> list[str]:
        return [graph for graph, names in self.arguments.items() if name in names]

    def writer(self, name: str) -> str:
        return next(graph for graph, names in self.results.items() if name in names)


def describe_step(module: ir.Module) -> Described:
    """Return the description of a training step that has strategies and is not partitioned yet."""
    arguments = list(described_tensors(module, "arg_attrs"))
    results = {
        keys.UPDATES.of(attributes): tensor["name"]
        for tensor, attributes in described_tensors(module, "res_attrs")
        if keys.UPDATES.on(attributes)
    }
    state = {
        tensor["name"]: (tensor, attributes)
        for tensor, attributes in arguments
        if keys.STATE.on(attributes)
    }
    hyper: list[HyperRow] = [
        {"name": tensor["name"], "role": keys.HYPER.of(attributes), "dtype": tensor["dtype"]}
        for tensor, attributes in arguments
        if keys.HYPER.on(attributes)
    ]
    kept = [_state(*state[name], result) for name, result in results.items()]
    sums = {
        keys.OF.of(attributes): tensor["name"]
        for tensor, attributes in state.values()
        if keys.STATE.of(attributes) == "gradient"
    }
    classes = [
        keys.CLASSES.of(attributes) for _, attributes in arguments if keys.CLASSES.on(attributes)
    ]
    own = (list(_gradients(module)), sums, classes[0] if classes else None)
    return Described(describe_module(module), kept, hyper, *own)


def _state(tensor: TensorEntry, attributes: ir.DictAttr, result: str) -> StateRow:
    return {
        **tensor,
        "kind": keys.STATE.of(attributes),
        "of": keys.OF.get(attributes),
        "result": result,
    }


def _gradients(module: ir.Module) -> Iterator[GradientRow]:
    for op in onnx.function(module).regions[0].blocks[0]:
        attributes = op.operation.attributes
        if keys.GRADIENT_OF.on(attributes):
            value, name = op.operation.results[0], keys.GRADIENT_OF.of(attributes)
            _, layouts = keys.STRATEGY.of(attributes)
            yield {
                "of": name,
                "dtype": dtype_of(value.type, name),
                "shape": shape_of(value),
                "layout": layouts[0].texts,
            }
