"""Device descriptions as TOML, written from measurements."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tensoropt.compiler.calibrate.fit import FittedCollective, FittedOperator, times_of
from tensoropt.compiler.calibrate.samples import Basics
from tensoropt.compiler.cost.device import Device, device_of
from tensoropt.compiler.cost.expected_error import ExpectedError, FigureError, MeasuredModel
from tensoropt.compiler.cost.machine import Machine
from tensoropt.compiler.cost.measurements import Waiting
from tensoropt.runtime.device.provider import CPU

__all__ = ["Description", "collective_lines", "figure_lines", "number_text"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LARGE = np.array([16e6, 256e6])  # bytes of messages that reach the bandwidth of a link


@dataclass(frozen=True)
class Description:
    """Fitted measurements of one device while all ranks of the machine work.

    Figures that were not measured come from ``base``: other types, the network, and the link
    between ranks if there is only one rank. ``expected`` is the error of predictions on ``models``.
    """

    name: str
    base: Device
    source: str
    machine: Machine
    basics: Basics
    operators: Sequence[FittedOperator] = ()
    collectives: Sequence[FittedCollective] = ()
    waiting: Mapping[int, Waiting] = field(default_factory=dict)
    expected: ExpectedError = field(default_factory=ExpectedError)
    models: Sequence[MeasuredModel] = ()

    def toml(self) -> str:
        """Return the text of the file; the same measurements give the same text."""
        parts = (
            self._general(),
            self._expected(),
            self._waiting(),
            self._operators(),
            collective_lines(self.collectives),
        )
        return "\n".join(line for part in parts for line in part) + "\n"

    @cached_property
    def device(self) -> Device:
        """The device that ``--device`` reads from the file."""
        return device_of(self.toml(), self.name)

    def _general(self) -> Iterable[str]:
        yield f"# {self.source}"
        yield f"name = {json.dumps(self.name)}"
        yield f"launch_overhead_s = {number_text(self.basics.floor.node_s)}"
        yield f"step_overhead_s = {number_text(self.basics.floor.graph_s)}"
        yield f"devices_per_node = {self.machine.ranks}"
        if self.machine.provider != CPU.name and self.base.architectures:
            capability = min(self.base.architectures) / 10
            yield f"compute_capability = {capability} # not measured: {self.base.name}'s"
        yield "\n[peak_flop_per_s]"
        yield from self._peaks()
        yield "\n[efficiency]"
        measured = self.basics.peaks.get("float32")
        part = measured.efficiency if measured else self.base.contraction_efficiency
        yield f"contraction = {number_text(part)}"
        yield "\n[memory]"
        yield f"bandwidth_bytes_per_s = {number_text(self.basics.bandwidth_bytes_per_s)}"
        yield f"capacity_bytes = {self.basics.capacity_bytes}"
        yield from self._process()
        yield from self._overlap()
        yield from self._links()
        yield "\n[measured_on]"
        for name, value in vars(self.machine).items():
            yield f"{name} = {json.dumps(value)}"

    def _process(self) -> Iterable[str]:
        process = self.basics.process
        if process is not None:
            yield "\n[process]"
            yield f"# Measured; the floor and the bytes of a node are at least {self.base.name}'s."
            for name in ("floor_bytes", "communicator_bytes", "node_bytes"):
                yield f"{name} = {getattr(process, name)}"
            yield f"\n# Of the libraries, not of the machine: {self.base.name}'s."
            for name in ("training_bytes", "exchange_bytes"):
                yield f"{name} = {getattr(process, name)}"
            for name in ("gaps", "margin"):
                yield f"{name} = {number_text(getattr(process, name))}"
            if process.error is not None:
                yield "\n[process.error]"
                yield from figure_lines(process.error)

    def _overlap(self) -> Iterable[str]:
        overlap = self.basics.overlap
        if overlap is not None:
            lost = "of a transfer's time, lost by the operators that overlap with it"
            yield "\n[overlap]"
            yield f"start_s = {number_text(overlap.start_s)}"
            yield f"share = {number_text(overlap.share)} # {lost}"

    def _peaks(self) -> Iterable[str]:
        """Yield the rates; types that were not measured have the base's ratio to float32."""
        known, own = dict(self.base.peaks), self.basics.peaks
        ratio = own["float32"].flop_per_s / known["float32"] if own else 1.0
        for dtype in sorted({*known, *own}):
            if dtype in own:
                yield f"{dtype} = {number_text(own[dtype].flop_per_s)}"
            else:
                rate = number_text(known[dtype] * ratio)
                yield f"{dtype} = {rate} # not measured: {self.base.name}'s ratio to float32"

    def _links(self) -> Iterable[str]:
        latency_s, rate = self._link()
        yield "\n[link.intra_node]"
        yield f"latency_s = {number_text(latency_s)}"
        yield f"bandwidth_bytes_per_s = {number_text(rate)}"
        yield f"\n# Not measured: {self.base.name}'s. For a cluster, edit it by hand."
        yield "[link.network]"
        yield f"latency_s = {number_text(self.base.network.latency_s)}"
        yield f"bandwidth_bytes_per_s = {number_text(self.base.network.bandwidth_bytes_per_s)}"

    def _link(self) -> tuple[float, float]:
        """Return latency alpha and bandwidth of the link.

        Fits ``ceil(log2 p) alpha + (p - 1) beta`` to the all-gathers of the largest group of p.
        """
        gathers = [collective for collective in self.collectives if collective.kind == "all_gather"]
        if not gathers:
            return self.base.intra_node.latency_s, self.base.intra_node.bandwidth_bytes_per_s
        widest = max(gathers, key=lambda collective: collective.ranks)
        p, fixed = widest.ranks, widest.curve.lines[0][0]
        slope = float(np.diff(times_of(widest.curve, _LARGE))[0] / np.diff(_LARGE)[0])
        latency_s = max(fixed - self.basics.floor.node_s, 1e-9) / (p - 1).bit_length()
        return latency_s, (p - 1) / max(slope, 1e-15)

    def _waiting(self) -> Iterable[str]:
        for ranks, waits in sorted(self.waiting.items()):
            yield f"\n[waiting.{ranks}] # longer than the parts: a collective, and all operators"
            yield f"collective_s = {number_text(waits.collective_s)}"
            yield f"operators = {number_text(waits.operators)}"

    def _expected(self) -> Iterable[str]:
        """Yield the expected errors; nothing if no plan was measured."""
        sized = "tensors of a rank" if self.basics.process is None else "processes of plans"
        figures = {
            "time": (self.expected.time, "other plans of the models below"),
            "other_models": (self.expected.other_models, "the time of plans of models left out"),
            "memory": (self.expected.memory, sized),
        }
        for name, (figure, what) in figures.items():
            if figure is not None:
                yield f"\n[expected_error.{name}] # |predicted / measured - 1|: {what}"
                yield from figure_lines(figure)
        for model in self.models:
            yield "\n[[measured_model]]"
            yield f"name = {json.dumps(model.name)}"
            yield f"sha256 = {json.dumps(model.sha256)}"
            yield f"training = {json.dumps(model.training)}"

    def _operators(self) -> Iterable[str]:
        for fitted in sorted(self.operators, key=lambda fitted: (fitted.name, fitted.dtype)):
            quality = f"{fitted.parts} samples, all part of other operators"
            if fitted.samples:
                errors = f"median error {fitted.median:.0%}, 90th percentile {fitted.worst:.0%}"
                quality = f"{fitted.samples} samples, {errors}"
            yield f"\n[operator.{_key(fitted.name)}.{_key(fitted.dtype)}] # {quality}"
            operator = fitted.operator
            yield f"launch_s = {number_text(operator.launch_s)}"
            if operator.s_per_flop:
                yield f"flop_per_s = {number_text(1.0 / operator.s_per_flop)}"
            if operator.s_per_byte:
                yield f"bytes_per_s = {number_text(1.0 / operator.s_per_byte)}"
            if operator.s_per_far_byte:
                yield f"cache_bytes = {operator.cache_bytes:.0f}"
                yield f"far_bytes_per_s = {number_text(1.0 / operator.s_per_far_byte)}"
            if operator.fused:
                # Sorted, as the order of a set differs from run to run.
                contexts = ", ".join(json.dumps(list(own)) for own in sorted(operator.fused))
                yield f"fused = [{contexts}]"


def collective_lines(collectives: Iterable[FittedCollective]) -> Iterator[str]:
    """Yield the curves: the greatest of lines of seconds and seconds per byte, and a root."""
    for own in sorted(collectives, key=lambda own: (own.kind, own.ranks)):
        errors = f"median error {own.median:.0%}, 90th percentile {own.worst:.0%}"
        lines = ", ".join(f"[{number_text(a)}, {number_text(b)}]" for a, b in own.curve.lines)
        yield f"\n[collective.{own.kind}.{own.ranks}] # {own.samples} samples, {errors}"
        yield f"lines = [{lines}]"
        if own.curve.s_per_root_byte:
            yield f"s_per_root_byte = {number_text(own.curve.s_per_root_byte)}"


def figure_lines(figure: FigureError) -> Iterator[str]:
    """Yield the keys of an error."""
    if figure.mean is not None and figure.p90 is not None:
        yield f"mean = {figure.mean:.4f}"
        yield f"p90 = {figure.p90:.4f}"
    yield f"samples = {figure.samples}"


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else json.dumps(text)


def number_text(value: float) -> str:
    """Return a TOML float of four significant digits."""
    text = f"{value:.4g}"
    return text if any(c in text for c in ".e") else f"{text}.0"
