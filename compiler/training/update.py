"""The update phase of a step: new parameters and moments from the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensoropt.compiler.training.marks import Marker, Marking, number_of
from tensoropt.compiler.training.optimizers import MOMENTS, Scalar, Scalars, update
from tensoropt.compiler.training.signature import Signature
from tensoropt.compiler.training.spec import Group, TrainingSpec, check_patterns
from tensoropt.dialects import onnx
from tensoropt.dialects.build import element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["Update"]

_CLIP_EPSILON = 1e-6  # torch.nn.utils.clip_grad_norm_


class Update:
    """Builds the update of all parameters; only the gradients are read from other phases.

    ``gradients`` maps each parameter to its gradient; the update follows the op that computes it.
    With several micro-batches a gradient is a sum that may be partial, so the update first reduces
    it. A parameter narrower than float32 is updated in float32, the type of its moments.
    """

    def __init__(
        self,
        signature: Signature,
        marker: Marker,
        spec: TrainingSpec,
        gradients: Mapping[ir.Value, ir.Value],
    ) -> None:
        self.signature, self.marker, self.spec = signature, marker, spec
        self.gradients = dict(gradients)
        self._partial = set(gradients) if spec.micro_batches > 1 else set[ir.Value]()

    def build(self) -> None:
        """Build the ops at the insertion point, and add the arguments and results."""
        step = None
        if self.spec.optimizer.name.startswith("adam"):
            step = self.signature.hyper("step")
        rate = self.signature.hyper("learning_rate")
        scalars = Scalars(self._shared("update"), rate, step)
        scalars.factor = self._factor(scalars)
        groups = self._groups()
        found: dict[Group | None, Scalars] = {None: scalars}
        for w in self.gradients:
            group = groups.get(w)
            if group not in found:
                own = found[group] = Scalars(self._shared("update"), rate, step, scalars.factor)
                own.rate = own.times(own.rate, group.rate_factor if group else 1.0)
            self._parameter(w, found[group], group)

    def _groups(self) -> dict[ir.Value, Group]:
        """Return the groups of the parameters that are in one. Raises UserError for an empty one.

        Of several groups with a parameter, it is in the first.
        """
        names = {w: self.signature.name_of(w) for w in self.gradients}
        for group in self.spec.groups:
            check_patterns("--group", group.patterns, [*names.values()], "no trained weight")
        found = {}
        for w, name in names.items():
            own = [group for group in self.spec.groups if group.has(name)]
            if own:
                found[w] = own[0]
        return found

    def _shared(self, name: str) -> Marking:
        return self.marker.builder(name, self.signature.opset, "update")

    def _builder(self, w: ir.Value) -> Marking:
        """Return a builder of ops that follow the gradient of ``w``."""
        return self._shared(self._name(w)).following(self._leader(w))

    def _name(self, w: ir.Value) -> str:
        return f"{self.signature.name_of(w)}.update"

    def _leader(self, w: ir.Value) -> int:
        owner = onnx.owner(self._gradient(w))
        assert owner is not None
        return number_of(owner)

    def _gradient(self, w: ir.Value) -> ir.Value:
        """Return the whole gradient, reduced on first use so that few whole gradients are live."""
        if w in self._partial:
            self._partial.remove(w)
            whole = self._shared(self._name(w)).unary("Identity", self.gradients[w])
            self.gradients[w] = whole
        return self.gradients[w]

    def _factor(self, scalars: Scalars) -> Scalar:
        """Return the factor of all gradients: it undoes the loss scale and clips.

        It also divides by the weight of the loss, which is known only after all micro-batches.
        """
        scale: Scalar = 1.0
        if self.spec.scales_loss:
            scale = scalars.op("Div", 1.0, scalars.wide(self.signature.hyper("loss_scale")))
        if self.spec.loss.counts_labels:
            weight = scalars.wide(self.signature.hyper("loss_weight"))
            scale = scalars.op("Div", scale, weight)
        if self.spec.clip_norm is None:
            return scale
        norm = scalars.times(scalars.root(self._sum_of_squares()), scale)
        least = scalars.op("Add", norm, _CLIP_EPSILON)
        clip = scalars.op("Min", 1.0, scalars.op("Div", self.spec.clip_norm, least))
        return scalars.times(clip, scale)

    def _sum_of_squares(self) -> ir.Value:
        """Return the sum of squares over all gradients, in float64: in float32 they may overflow.

        ``topt.norm`` lets each term be a partial sum on the ranks that hold a part of the gradient.
        """
        terms = []
        for w in self.gradients:
            make = self._builder(w)
            g = make.cast(self._gradient(w), ir.F64Type.get())
            if shape_of(g):
                result = tensor_type([], element_type(g))
                terms.append(make.onnx("ReduceSumSquare", [g], result, keepdims=int_attr(0)))
            else:
                terms.append(make.mul(g, g))
        return self._shared("norm").onnx("Sum", terms, terms[0].type, **keys.NORM.item(True))

    def _wide(self, w: ir.Value) -> ir.Value:
        """Return the gradient in float32 or wider; each use casts again, so no copy stays live."""
        return self._builder(w).wide(self._gradient(w))

    def _parameter(self, w: ir.Value, scalars: Scalars, group: Group | None) -> None:
        signature, make, leader = self.signature, self._builder(w), self._leader(w)
        wide, moments = make.wide(w), {}
        for kind in MOMENTS[self.spec.optimizer.name]:
            moments[kind] = signature.state(w, kind, wide.type)
            signature.mark(moments[kind], keys.FOLLOWS.item(leader))
        optimizer = self.spec.optimizer
        if group is not None and group.weight_decay is not None:
            optimizer = replace(optimizer, weight_decay=group.weight_decay)
        new, changed = update(make, optimizer, scalars, wide, self._wide(w), moments)
        signature.set_state(w, "parameter")
        signature.replace(w, make.cast(new, element_type(w)), signature.number_of(w))
        for kind, old in moments.items():
            signature.replace(old, changed[kind], leader)
