"""Bodies of standard operators for `tensoropt.Attention` and its gradient.

ONNX Runtime prefers the kernels of our library. Without the library it runs the bodies, and so do
other runtimes: they keep all scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import parser

from tensoropt.dialects.onnx import ATTENTION_OPTIONS
from tensoropt.runtime.support.collectives import ATTENTION_KERNELS, DOMAIN

__all__ = ["add_attention_functions"]

_SINCE = 10
"""The first IR version with several functions of one name."""
_LEAST_OPSET = 18
"""The first opset with the axes of ReduceMax as an input."""
_OPTIONS = ("bias", "lengths", "offset", "row_seeds", "key_seeds")
_FORMS = ("causal", "window", "softcap")
"""Attributes that add operators if they are not zero."""
_NAME, _GRADIENT = ATTENTION_KERNELS
_REQUIRED = {_NAME: ("q", "k", "v"), _GRADIENT: ("dy", "q", "k", "v", "y", "lse")}
_RESULTS = {_NAME: ("y", "lse"), _GRADIENT: ("dq", "dk", "dv", "dbias")}


def add_attention_functions(model: onnx.ModelProto) -> None:
    """Add a body for each form of attention in a model, in place; linear in its nodes.

    Does nothing without attention, and below opset 18.
    """
    opset = next((one.version for one in model.opset_import if not one.domain), 0)
    nodes = [n for n in model.graph.node if n.domain == DOMAIN and n.op_type in _REQUIRED]
    if not nodes or opset < _LEAST_OPSET:
        return
    functions = dict[tuple[str, str], onnx.FunctionProto]()
    for node in nodes:
        form = _Form.from_node(node)
        node.overload = form.overload
        key = node.op_type, node.overload
        if key not in functions:
            functions[key] = form.function(opset)
    model.functions.extend(functions.values())
    model.ir_version = max(model.ir_version, _SINCE)


@dataclass(frozen=True)
class _Form:
    """The options of an attention on which its operators depend."""

    operator: str
    options: frozenset[str]
    """Optional inputs, and the attributes that are not zero."""
    results: int

    @classmethod
    def from_node(cls, node: onnx.NodeProto) -> _Form:
        first = len(_REQUIRED[node.op_type])
        present = {name for name, read in zip(_OPTIONS, node.input[first:], strict=False) if read}
        present |= {one.name for one in node.attribute if one.name in _FORMS and (one.i or one.f)}
        results = [place for place, name in enumerate(node.output) if name]
        return cls(node.op_type, frozenset(present), results[-1] + 1)

    @property
    def overload(self) -> str:
        """The name of the form among the functions of its operator."""
        return "_".join([*sorted(self.options), str(self.results)])

    def function(self, opset: int) -> onnx.FunctionProto:
        """Return the function of the form."""
        lines = [
            *self._scores(),
            *(self._result() if self.operator == _NAME else self._gradients()),
        ]
        inputs = [*_REQUIRED[self.operator], *_OPTIONS]
        outputs = _RESULTS[self.operator][: self.results]
        attributes = ", ".join(ATTENTION_OPTIONS)
        text = "\n".join(
            [
                f'<domain: "{DOMAIN}", opset_import: ["": {opset}]>',
                f"{self.operator} <{attributes}> ({', '.join(inputs)}) => ({', '.join(outputs)})",
                "{",
                *lines,
                "}",
            ]
        )
        function = parser.parse_function(text)
        function.overload = self.overload
        return function

    def _scores(self) -> Iterator[str]:
        """Yield lines for the scores, minus infinity where a query does not read a key.

        Query heads of one head of keys are rows of one matrix.
        """
        yield """
            scale = Constant <value_float: float = @scale> ()
            zero = Constant <value = int64 {0}> ()
            one = Constant <value = int64 {1}> ()
            last = Constant <value_ints = [-1]> ()
            hidden = Constant <value_float = -inf> ()
            q_sizes = Shape (q)
            k_sizes = Shape (k)
            shared = Shape <start = 0, end = 2> (k)
            batch_heads_rows = Shape <start = 0, end = 3> (q)
            keys_size = Shape <start = 2, end = 3> (k)
            joined = Concat <axis = 0> (shared, last)
            width = Shape <start = 3> (v)
            depth = Shape <start = 3> (q)
            by_key_head = Concat <axis = 0> (joined, depth)
            scores_sizes = Concat <axis = 0> (batch_heads_rows, keys_size)
            scores_by_head = Concat <axis = 0> (joined, keys_size)
            q_wide = Cast <to = 1> (q)
            k_wide = Cast <to = 1> (k)
            v_wide = Cast <to = 1> (v)
            q_rows = Reshape (q_wide, by_key_head)
            k_columns = Transpose <perm = [0, 1, 3, 2]> (k_wide)
            products = MatMul (q_rows, k_columns)
            scaled = Mul (products, scale)
            s0 = Reshape (scaled, scores_sizes)"""
        scores = "s0"
        if "softcap" in self.options:
            yield """
                cap = Constant <value_float: float = @softcap> ()
                capped = Div (s0, cap)
                tangent = Tanh (capped)
                s1 = Mul (tangent, cap)"""
            scores = "s1"
        if "bias" in self.options:
            yield f"""
                bias_wide = Cast <to = 1> (bias)
                s2 = Add ({scores}, bias_wide)"""
            scores = "s2"
        conditions = [*self._conditions()]
        if not conditions:
            yield f"scores = Identity ({scores})"
            return
        offset = "offset" if "offset" in self.options else "zero"
        yield f"""
            tokens = Constant <value = int64 {{2}}> ()
            row_count = Gather (q_sizes, tokens)
            key_count = Gather (k_sizes, tokens)
            keys = Range (zero, key_count, one)
            rows = Range (zero, row_count, one)
            places = Add (rows, {offset})
            positions = Unsqueeze (places, last)"""
        read = ""
        for number, (lines, name) in enumerate(conditions):
            yield lines
            if read:
                yield f"r{number} = And ({read}, {name})"
            read = f"r{number}" if read else name
        yield f"scores = Where ({read}, {scores}, hidden)"

    def _conditions(self) -> Iterator[tuple[str, str]]:
        """Yield the lines that say where keys are read, and the name of their result."""
        if "causal" in self.options:
            yield "is_before = LessOrEqual (keys, positions)", "is_before"
        if "window" in self.options:
            yield (
                """
                window = Constant <value_int: int = @window> ()
                first = Sub (positions, window)
                is_near = Greater (keys, first)""",
                "is_near",
            )
        if "lengths" in self.options:
            yield (
                """
                lengths_axes = Constant <value_ints = [1, 2, 3]> ()
                ends = Unsqueeze (lengths, lengths_axes)
                is_text = Less (keys, ends)""",
                "is_text",
            )

    @staticmethod
    def _weights(reference: str, name: str) -> str:
        """Return lines for the exponentials of scores less a column; 0 for rows without keys."""
        return f"""
            has_keys = Greater ({reference}, hidden)
            no_number = Constant <value_float = 0.0> ()
            shift = Where (has_keys, {reference}, no_number)
            lowered = Sub (scores, shift)
            {name} = Exp (lowered)"""

    def _dropped(self, *weights: str) -> str:
        """Return lines for ``kept_`` weights, or their gradients: 0 where weights are dropped."""
        if "row_seeds" not in self.options:
            return "\n".join(f"kept_{name} = Identity ({name})" for name in weights)
        factors = """
            mix = Constant <value_int: int = @drop_mix> ()
            threshold = Constant <value_int: int = @drop_threshold> ()
            kept_factor = Constant <value_float: float = @drop_scale> ()
            dropped_factor = Constant <value_float = 0.0> ()
            seeds = Mul (row_seeds, key_seeds)
            mixed_seeds = Add (seeds, mix)
            hashes = Mul (seeds, mixed_seeds)
            is_kept = Greater (hashes, threshold)
            factors = Where (is_kept, kept_factor, dropped_factor)"""
        return "\n".join([factors, *(f"kept_{name} = Mul ({name}, factors)" for name in weights)])

    def _result(self) -> Iterator[str]:
        """Yield lines for the result and the logarithms; rows without keys are 0."""
        yield "top = ReduceMax (scores, last)"
        yield self._weights("top", "powers")
        yield """
            sums = ReduceSum (powers, last)
            logs = Log (sums)
            lse_column = Add (logs, shift)
            lse = Squeeze (lse_column, last)
            whole = Constant <value_float = 1.0> ()
            divisor = Where (has_keys, sums, whole)
            weights = Div (powers, divisor)"""
        yield self._dropped("weights")
        yield """
            weights_rows = Reshape (kept_weights, scores_by_head)
            y_rows = MatMul (weights_rows, v_wide)
            y_sizes = Concat <axis = 0> (batch_heads_rows, width)
            y_wide = Reshape (y_rows, y_sizes)
            y = CastLike (y_wide, q)"""

    def _gradients(self) -> Iterator[str]:
        """Yield lines for the gradients, which repeat the weights from the logarithms."""
        yield "lse_column = Unsqueeze (lse, last)"
        yield self._weights("lse_column", "weights")
        yield """
            dy_wide = Cast <to = 1> (dy)
            y_wide = Cast <to = 1> (y)
            agreement = Mul (dy_wide, y_wide)
            delta = ReduceSum (agreement, last)
            value_rows = Concat <axis = 0> (joined, width)
            dy_rows = Reshape (dy_wide, value_rows)
            v_columns = Transpose <perm = [0, 1, 3, 2]> (v_wide)
            dweights_rows = MatMul (dy_rows, v_columns)
            dweights = Reshape (dweights_rows, scores_sizes)"""
        yield self._dropped("dweights", "weights")
        yield """
            change = Sub (kept_dweights, delta)
            d0 = Mul (weights, change)
            weights_by_head = Reshape (kept_weights, scores_by_head)
            weights_columns = Transpose <perm = [0, 1, 3, 2]> (weights_by_head)
            dv_wide = MatMul (weights_columns, dy_rows)
            dv = CastLike (dv_wide, v)"""
        scores = "d0"
        if self.results == len(_RESULTS[_GRADIENT]):
            yield """
                bias_sizes = Shape (bias)
                one_size = Constant <value_ints = [1]> ()
                is_repeated = Equal (bias_sizes, one_size)
                repeated = NonZero (is_repeated)
                repeated_axes = Reshape (repeated, last)
                dbias_wide = ReduceSum <noop_with_empty_axes = 1> (d0, repeated_axes)
                dbias = CastLike (dbias_wide, bias)"""
        if "softcap" in self.options:
            yield """
                number_one = Constant <value_float = 1.0> ()
                square = Mul (tangent, tangent)
                slope = Sub (number_one, square)
                d1 = Mul (d0, slope)"""
            scores = "d1"
        yield f"""
            dscores = Mul ({scores}, scale)
            dscores_rows = Reshape (dscores, scores_by_head)
            dq_rows = MatMul (dscores_rows, k_wide)
            dq_wide = Reshape (dq_rows, q_sizes)
            dq = CastLike (dq_wide, q)
            dscores_columns = Transpose <perm = [0, 1, 3, 2]> (dscores_rows)
            dk_wide = MatMul (dscores_columns, q_rows)
            dk = CastLike (dk_wide, k)"""
