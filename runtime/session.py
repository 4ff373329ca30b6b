"""The ONNX Runtime session of one rank, and the one-device session it is compared with."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.dtypes import ONNX_CODES, Array, dtype_of
from tensoropt.runtime.errors import UserError, one_line
from tensoropt.runtime.ops import library_path

__all__ = [
    "BoundGraph",
    "Session",
    "bound_graph",
    "cores",
    "every_value_session",
    "keep_memory_low",
    "one_device_session",
    "rank_session",
]

_FATAL = 4  # ONNX Runtime also raises its errors; printing them as well would tell them twice


class Session:
    """An ONNX Runtime session whose inputs are set once and run many times."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._names = [output.name for output in session.get_outputs()]
        self.inputs = [value.name for value in session.get_inputs()]
        self._feeds: dict[str, Any] = {}

    def feed(self, name: str, array: Array) -> None:
        """Set an input; the array is kept, not copied."""
        self._feeds[name] = _to_ort(array)

    def run(self) -> list[Any]:
        """Run one step; returns what `fetch` takes. Raises `UserError`."""
        try:
            values: list[Any] = self._session.run_with_ort_values(self._names, self._feeds)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            raise UserError(one_line(error)) from None
        return values

    def signature(self) -> list[tuple[str, str, list[Any]]]:
        """Return name, type such as ``tensor(float)``, and shape of each input."""
        return [(value.name, value.type, value.shape) for value in self._session.get_inputs()]

    def end_trace(self) -> Path:
        """Return the file with what a traced session wrote down; nothing is written any more."""
        return Path(self._session.end_profiling())

    def fetch(self, values: Sequence[Any]) -> dict[str, Array]:
        """Return the outputs of a step as arrays of their own, by name."""
        return {name: _from_ort(value) for name, value in zip(self._names, values, strict=True)}


class BoundGraph:
    """A session that reads and writes arrays which stay where they are from run to run.

    An output may be bound to the array of an input, which it then replaces.
    """

    def __init__(self, session: Any) -> None:
        self._session, self._binding = session, session.io_binding()
        self.inputs = [value.name for value in session.get_inputs()]
        self.outputs = [value.name for value in session.get_outputs()]

    def read(self, name: str, array: Array) -> None:
        """Let input ``name`` be read from ``array``, which is kept, not copied."""
        self._binding.bind_ortvalue_input(name, _to_ort(array))

    def write(self, name: str, array: Array) -> None:
        """Let output ``name`` be written into ``array``."""
        self._binding.bind_ortvalue_output(name, _to_ort(array))

    def run(self) -> None:
        """Run once. Raises `UserError`."""
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            raise UserError(one_line(error)) from None


def rank_session(graph: Path, threads: int, trace: Path | None = None) -> Session:
    """Return the session of one rank's graph, with the collectives; MPI must be initialised.

    With ``trace`` it writes down how long each node takes, in a file whose name begins so, and
    the graph that it runs to ``{trace}.onnx``.
    """
    options = _options(threads)
    if trace is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(trace)
        options.optimized_model_filepath = f"{trace}.onnx"
        weights = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(weights, f"{trace.name}.bin")
    return Session(_rank_opened(graph, options))


def bound_graph(graph: Path, threads: int, optimised: Path | None = None) -> BoundGraph:
    """Return one rank's graph of a training step; MPI must be initialised.

    What ONNX Runtime makes of the graph is written to ``optimised``.
    """
    options = _options(threads)
    keep_memory_low(options)
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    return BoundGraph(_rank_opened(graph, options))


def keep_memory_low(options: Any) -> None:
    """Set what lets a training step take less memory, in the same time (decision 14).

    Nodes run in the order of the file, which says when activations are computed anew; and the
    first run does not lay out a second block for all that it has allocated.
    """
    import onnxruntime

    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.enable_mem_pattern = False


def every_value_session(model: bytes, folder: Path, threads: int) -> Session:
    """Return the session of a rank's graph that was changed to return what is inside it.

    Nothing is optimised, so that all of it is there; external data lies in ``folder``.
    """
    import onnxruntime

    options = _options(threads)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    where = "session.model_external_initializers_file_folder_path"
    options.add_session_config_entry(where, str(folder))
    return Session(_rank_opened(model, options))


def one_device_session(model: Path) -> Session:
    """Return stock ONNX Runtime's session of the whole model, on all cores."""
    return Session(_opened(model, _options(cores()), lambda: None))


def cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def _options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _FATAL
    # Idle threads that spin take the cores that other ranks need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Products with weights of a few bits in float32 (1) as the model says: ONNX Runtime would round
    # the activations to 8 bits (4), and on one device not for the same products as on several.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return options


def _rank_opened(graph: Path | bytes, options: Any) -> Any:
    library = str(library_path())
    return _opened(graph, options, lambda: options.register_custom_ops_library(library))


def _opened(model: Path | bytes, options: Any, prepare: Callable[[], None]) -> Any:
    import onnxruntime

    try:
        prepare()
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options,
            providers=["CPUExecutionProvider"],
        )
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        where = "a graph" if isinstance(model, bytes) else model
        raise UserError(f"{where}: {one_line(error)}") from None


def _to_ort(array: Array) -> Any:
    from onnxruntime import OrtValue

    code = ONNX_CODES.get(array.dtype.name)
    if code is None:
        return OrtValue.ortvalue_from_numpy(array)
    raw = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return OrtValue.ortvalue_from_numpy_with_onnx_type(raw, code)


def _from_ort(value: Any) -> Array:
    if not value.is_tensor():
        raise UserError(f"an output is no tensor, got: {value.data_type()}")
    names = {code: name for name, code in ONNX_CODES.items()}
    name = names.get(value.element_type())
    if name is None:
        # A view of memory that may be an input's, which is not kept for the output's sake.
        array: Array = value.numpy().copy()
        return array
    shape = tuple(value.shape())
    copy = np.empty(shape, dtype_of(name))
    ctypes.memmove(copy.ctypes.data, value.data_ptr(), copy.nbytes)
    return copy
