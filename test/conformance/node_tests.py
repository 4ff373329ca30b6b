"""The tests of the installed onnx package, and stock ONNX Runtime's verdict on each.

These are the generated node tests, the small models of the standard (`simple`) and the ones that
PyTorch once exported. The large models are for `sweep.py`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tensoropt.compiler.protos.versions import MAX_IR_VERSION, MAX_OPSET
from tensoropt.dialects.elements import element_of_array
from tensoropt.dialects.onnx import is_random_name, op_name

__all__ = ["NodeTest", "collect", "run", "same", "session_of", "standard_tests"]

_KINDS = ("simple", "pytorch-operator", "pytorch-converted")
_STOCHASTIC = 2  # position of `training_mode` among the operands of Dropout
_ROUNDINGS = 4.0  # of the largest value of an output, in units of its last place
_OLDER = (21, 15)  # opsets to try where ONNX Runtime has no kernel of the newest


@dataclass(frozen=True)
class NodeTest:
    """A model, its inputs by name, and what the standard says of its outputs.

    ``wanted`` holds an array per output (a list for a sequence, ``None`` for an absent optional).
    Outputs of a test that ``draws`` random numbers have a type and a shape, but no certain values.
    """

    name: str
    model: bytes
    inputs: dict[str, Any]
    wanted: list[Any]
    rtol: float
    atol: float
    operators: tuple[str, ...]
    draws: bool


def collect() -> list[NodeTest]:
    """Return all tests, newer opsets taken down to the newest that ONNX Runtime loads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the generators: they divide by zero on purpose
        return [_test(*found) for found in (*_generated(), *_stored())]


def standard_tests(names: Container[str] | None = None) -> list[NodeTest]:
    """Return the tests, of all or of ``names``, that stock ONNX Runtime passes, which is the truth.

    A test that it fails in its own opset may pass in an older one, whose kernels it has.
    """
    wanted = [test for test in collect() if names is None or test.name in names]
    found = (next(filter(_passes, _with_older(test)), None) for test in wanted)
    return [test for test in found if test is not None]


def _passes(test: NodeTest) -> bool:
    return stock_verdict(test) is None


def _with_older(test: NodeTest) -> Iterator[NodeTest]:
    """Yield the test in its own opset and in older ones."""
    yield test
    model = onnx.ModelProto.FromString(test.model)
    for version in _OLDER:
        for entry in model.opset_import:
            if not entry.domain and entry.version > version:
                entry.version = version
                yield replace(test, model=model.SerializeToString())


def stock_verdict(test: NodeTest) -> str | None:
    """Return why stock ONNX Runtime fails a test, ``None`` where it passes."""
    try:
        return same(test, run(session_of(test.model), test.inputs), test.wanted)
    except Exception as error:  # its own types of error have no common base
        return str(error)


def _generated() -> Iterator[tuple[Any, onnx.ModelProto, list[Any], list[Any]]]:
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        for inputs, outputs in (case.data_sets or ())[:1]:
            yield case, case.model, list(inputs), list(outputs)


def _stored() -> Iterator[tuple[Any, onnx.ModelProto, list[Any], list[Any]]]:
    from onnx.backend.test.loader import load_model_tests

    for case in (case for kind in _KINDS for case in load_model_tests(kind=kind)):
        folder = Path(case.model_dir)
        model = onnx.load(folder / "model.onnx")
        stored = {tensor.name for tensor in model.graph.initializer}
        ends = [v for v in model.graph.input if v.name not in stored], model.graph.output
        kinds = ("input", "output")
        yield case, model, *([_read(folder / "test_data_set_0" / f"{kind}_{i}.pb", end.type)
                              for i, end in enumerate(side)]
                             for kind, side in zip(kinds, ends, strict=True))  # fmt: skip


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    data, held = path.read_bytes(), kind.WhichOneof("value")
    if held == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if held == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return onnx.TensorProto.FromString(data)


def _test(case: Any, proto: onnx.ModelProto, inputs: list[Any], outputs: list[Any]) -> NodeTest:
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    model.ir_version = min(max(model.ir_version, 3), MAX_IR_VERSION)
    for entry in model.opset_import:
        entry.version = min(entry.version, MAX_OPSET.get(entry.domain, entry.version))
    stored = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in stored]
    data = dict(zip(names, map(_plain, inputs), strict=True))
    operators = dict.fromkeys(_operator(node) for node in model.graph.node)
    draws = any(_draws(node, data) for node in model.graph.node)
    return NodeTest(case.name, model.SerializeToString(), data, [*map(_plain, outputs)],
                    case.rtol, case.atol, tuple(operators), draws)  # fmt: skip


def _operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def _plain(value: Any) -> Any:
    """Return a tensor as an array, of the element type that numpy has no name for too."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None else np.asarray(value)


def _draws(node: onnx.NodeProto, data: dict[str, Any]) -> bool:
    if node.op_type == "Dropout" and len(node.input) > _STOCHASTIC:
        return bool(np.any(data.get(node.input[_STOCHASTIC], True)))
    return is_random_name(op_name(node.domain, node.op_type))


def same(test: NodeTest, got: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    """Return how ``got`` differs from ``wanted`` by the test's tolerances, ``None`` if it agrees.

    |got - wanted| <= atol + rtol |wanted|, as the standard's own runner has it, and four roundings
    of the largest value more: sums that are added up in another order differ by as much.
    """
    if len(got) != len(wanted):
        return f"{len(got)} outputs, expected {len(wanted)}"
    for position, (one, other) in enumerate(zip(got, wanted, strict=True)):
        found = _difference(test, one, other)
        if found is not None:
            return f"output {position}: {found}"
    return None


def _difference(test: NodeTest, got: Any, wanted: Any) -> str | None:
    if isinstance(wanted, list) and isinstance(got, list):
        return same(test, got, wanted)
    if got is None or wanted is None:
        return None if got is wanted else f"got: {got}, expected {wanted}"
    got, wanted = np.asarray(got), np.asarray(wanted)
    text = wanted.dtype.kind in "OUS"
    if got.shape != wanted.shape or (got.dtype != wanted.dtype and not text):
        return f"{got.dtype} {got.shape}, expected {wanted.dtype} {wanted.shape}"
    if test.draws:
        return None
    if text:
        return None if np.array_equal(got, wanted) else "other texts"
    return _far(got, wanted, test.rtol, test.atol)


def _far(got: Any, wanted: Any, rtol: float, atol: float) -> str | None:
    if element_of_array(wanted).is_integer:
        wrong = got != wanted
    else:
        kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
        atol += _roundings(wanted)
        wrong = ~np.isclose(got.astype(kind), wanted.astype(kind), rtol, atol, equal_nan=True)
    if not np.any(wrong):
        return None
    one = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(np.count_nonzero(wrong))
    return f"{count} of {got.size} differ, at {one}: {got[one]}, expected {wanted[one]}"


def _roundings(wanted: Any) -> float:
    """Return a few units in the last place of the largest finite value."""
    import ml_dtypes

    if wanted.dtype.kind == "c":
        return 0.0
    sizes = np.abs(wanted.astype(np.float64))
    largest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
    return _ROUNDINGS * float(ml_dtypes.finfo(wanted.dtype).eps) * largest


def session_of(model: bytes | str, *, optimised: bool = True, library: str | None = None) -> Any:
    """Return ONNX Runtime's session of a model, or of a file; ``library`` holds more operators."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library is not None:
        options.register_custom_ops_library(library)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(session: Any, inputs: dict[str, Any]) -> list[Any]:
    """Return the outputs of one run; also of element types that numpy lacks.

    Runs on copies: ONNX Runtime's BatchNormalization writes new statistics over the old ones.
    """
    from ort_values import has_small_types, run_small

    feeds = copy.deepcopy(inputs)
    if has_small_types(session):
        return run_small(session, feeds)
    return list(session.run(None, feeds))
