"""The ONNX Runtime session of a rank, and the one-device session to compare with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.device.provider import CPU, HostArray, PlacedArray, Provider
from tensoropt.runtime.ops import library_path
from tensoropt.runtime.ops.library import move, settle
from tensoropt.runtime.session.convolution import use_own_convolutions
from tensoropt.runtime.session.elementwise import fuse_chains, fuse_elementwise
from tensoropt.runtime.session.gemm import use_own_gemms
from tensoropt.runtime.session.order import Optimised, is_ordered, optimise_in_order
from tensoropt.runtime.session.rounding import limit_rounding
from tensoropt.runtime.session.weight_gradient import use_own_weight_gradients
from tensoropt.runtime.support.dtypes import Array, dtype_of_code
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.support.options import OptionError

if TYPE_CHECKING:
    import onnx
    from onnxruntime import InferenceSession, OrtValue, SessionOptions

__all__ = [
    "VALUE_RUNS",
    "Change",
    "RankSession",
    "check_custom_ops",
    "cores",
    "every_value_session",
    "made_session",
    "one_device_session",
    "rank_session",
    "run_in_file_order",
    "training_session",
    "use_custom_ops",
]

Change = Callable[["onnx.ModelProto"], bool]
"""Changes a graph in place; returns False if it changes nothing."""

VALUE_RUNS = 8
"""Number of runs over which the internal values of a graph are spread, to limit memory."""

_FATAL = 4  # ONNX Runtime also raises its errors, so logging would duplicate them

_TEXT = "tensor(string)"

_CUDA_MEMORY = "Cuda"  # in ONNX Runtime; "Cpu" and "CudaPinned" are host memory


class RankSession:
    """A session with bound input and output arrays, which keep their addresses between runs.

    ``inputs`` and ``outputs`` are names. Inputs are set with `feed` or `read`. An output that
    `write` does not bind is allocated by ONNX Runtime, on the device if the provider has one. With
    CUDA ``graphs``, all addresses are fixed.
    """

    def __init__(
        self, session: InferenceSession, provider: Provider, *, graphs: bool = False
    ) -> None:
        self._session, self._provider = session, provider
        self._binding = session.io_binding()
        self.inputs = [value.name for value in session.get_inputs()]
        self.outputs = [value.name for value in session.get_outputs()]
        self._texts = {v.name for v in session.get_outputs() if v.type == _TEXT}
        self._allocated = dict.fromkeys(self.outputs)
        sized = {v.name for v in session.get_outputs() if all(isinstance(n, int) for n in v.shape)}
        self._unsized = [] if graphs else [name for name in self.outputs if name not in sized]
        self._is_fed = True  # since the last run
        self._elsewhere: dict[str, PlacedArray] = {}
        self._passed: dict[str, OrtValue] = {}
        self._kept: dict[tuple[str, str], PlacedArray] = {}  # bindings do not keep arrays alive
        self._weights: dict[str, PlacedArray] = {}
        self._rebind_outputs()

    def _rebind_outputs(self) -> None:
        """Let ONNX Runtime allocate outputs again.

        Otherwise it would write into the last outputs. These may now be inputs, or differ in size,
        which can depend on values even with unchanged inputs.
        """
        for name in self._allocated if self._is_fed else self._unsized:
            if name in self._allocated:
                self._bind_allocated(name)

    def _bind_allocated(self, name: str) -> None:
        if name in self._texts:
            self._binding.bind_output(name)  # in host memory
        else:
            self._binding.bind_output(name, self._provider.device, self._provider.number)

    def feed(self, name: str, array: Array) -> None:
        """Set an input; on the CPU the array is referenced, not copied."""
        self.read(name, self._provider.place(array))

    def read(self, name: str, array: PlacedArray) -> None:
        """Bind input ``name`` to ``array``, which is referenced, not copied.

        An array on the host that nodes read on the device, or vice versa, is copied before each
        run, which a CUDA graph would not repeat.
        """
        array.bind_input(self._binding, name)
        self._kept["input", name] = array
        self._passed.pop(name, None)
        self._is_fed = True
        self._elsewhere.pop(name, None)
        if self._is_elsewhere(name, array):
            self._elsewhere[name] = array

    def _is_elsewhere(self, name: str, array: PlacedArray) -> bool:
        """Return True if nodes read an input on the host and ``array`` is on the device, or vice
        versa."""
        if self._provider.device == "cpu":
            return False
        return isinstance(array, HostArray) is (name in self._on_device)

    @cached_property
    def _on_device(self) -> set[str]:
        """The inputs that nodes read on the device."""
        places = zip(self.inputs, self._session.get_input_memory_infos(), strict=True)
        return {name for name, place in places if place.name == _CUDA_MEMORY}

    def write(self, name: str, array: PlacedArray) -> None:
        """Bind output ``name`` to ``array``, which may also be bound to an input."""
        self._allocated.pop(name, None)
        array.bind_output(self._binding, name)
        self._kept["output", name] = array

    def allocate(self, name: str) -> None:
        """Unbind an output from its array, so that ONNX Runtime allocates it."""
        self._kept.pop(("output", name), None)
        self._allocated[name] = None
        self._bind_allocated(name)

    def run(self) -> None:
        """Run once, and wait for the device. Raises `UserError`."""
        move()
        self._rebind_outputs()
        self._is_fed = False
        try:
            for name, array in self._elsewhere.items():  # binding copies the array
                array.bind_input(self._binding, name)
            self._session.run_with_iobinding(self._binding)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            settle()  # ONNX Runtime has freed the memory of the run
            raise UserError(self._provider.explain(error)) from None
        move()

    def release(self) -> None:
        """Release the outputs that ONNX Runtime allocated for the last run."""
        for name in self._allocated:
            self._bind_allocated(name)

    def keep(self, weights: Mapping[str, PlacedArray]) -> None:
        """Keep references to arrays that the session reads as weights."""
        self._weights.update(weights)

    def values(self, names: Collection[str]) -> dict[str, OrtValue]:
        """Return the last run's outputs ``names``, without copying them."""
        values = zip(self.outputs, self._binding.get_outputs(), strict=True)
        return {name: value for name, value in values if name in names}

    def read_value(self, name: str, value: OrtValue) -> None:
        """Bind input ``name`` to an output of a run, possibly of another session."""
        self._binding.bind_ortvalue_input(name, value)
        self._passed[name] = value  # bindings do not keep it alive
        self._kept.pop(("input", name), None)
        self._is_fed = True

    def fetch(self) -> dict[str, Array]:
        """Return the outputs of the last run as separate arrays, by name."""
        return dict(self.results())

    def results(self, names: Collection[str] | None = None) -> Iterator[tuple[str, Array]]:
        """Yield name and array of the last run's outputs ``names``, or of all, one at a time."""
        for name, value in zip(self.outputs, self._binding.get_outputs(), strict=True):
            if names is None or name in names:
                yield name, self._fetch(name, value)

    def _fetch(self, name: str, value: OrtValue) -> Array:
        if not value.is_tensor():
            raise UserError(f"output '{name}': expected a tensor, got: {value.data_type()}")
        if dtype_of_code(value.element_type()).hasobject:
            strings: Array = value.numpy()
            return strings
        return self._provider.fetch(value)

    def signature(self) -> list[tuple[str, str, list[int | str | None]]]:
        """Return the name, type such as ``tensor(float)``, and shape of each input."""
        return [(value.name, value.type, value.shape) for value in self._session.get_inputs()]

    def nodes_on_cpu(self) -> int | None:
        """Return the number of nodes that a device left to the CPU, None for the CPU provider."""
        return self._provider.nodes_on_cpu(self._session)

    def end_trace(self) -> Path:
        """End tracing and return the trace file."""
        return Path(self._session.end_profiling())


class TextRankSession(RankSession):
    """A session with string inputs, which ONNX Runtime cannot bind: they are passed at each run."""

    def __init__(
        self, session: InferenceSession, provider: Provider, *, graphs: bool = False
    ) -> None:
        super().__init__(session, provider, graphs=graphs)
        self._fed: dict[str, Array] = {}
        self._made: list[Array] = []
        self._targets: dict[str, PlacedArray] = {}

    def feed(self, name: str, array: Array) -> None:
        self._fed[name] = array

    def read(self, name: str, array: PlacedArray) -> None:
        self._fed[name] = array.get()

    def write(self, name: str, array: PlacedArray) -> None:
        self._targets[name] = array

    def allocate(self, name: str) -> None:
        self._targets.pop(name, None)

    def run(self) -> None:
        move()
        try:
            self._made = self._session.run(self.outputs, self._fed)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            settle()
            raise UserError(one_line(error)) from None
        move()
        for name, array in self._targets.items():
            array.put(self._made[self.outputs.index(name)])

    def results(self, names: Collection[str] | None = None) -> Iterator[tuple[str, Array]]:
        pairs = zip(self.outputs, self._made, strict=True)
        yield from ((name, array) for name, array in pairs if names is None or name in names)


def rank_session(
    graph: Path,
    threads: int,
    trace: Path | None = None,
    *,
    provider: Provider = CPU,
    graphs: bool = False,
    transient_bytes: int | None = None,
    weights: Mapping[str, HostArray] | None = None,
    trains: bool = False,
    change: Change | None = None,
    kind: type[RankSession] | None = None,
) -> RankSession:
    """Return the session of one rank's graph, with the collectives, which initialize MPI.

    ``transient_bytes`` is the predicted memory of its tensors, for a session with low memory use.
    ``weights`` are read in place, on the CPU; then no weight is packed for products, because that
    would copy it. ``trains`` adds the training kernels. ``change`` changes the graph beforehand.
    ``kind`` is the class of the session.

    ``graphs`` requests CUDA graphs: the first run is three runs, and a node that cannot be captured
    is an error. With ``trace``, the session writes node times to a file with this prefix, and the
    optimized graph to ``{trace}.onnx``. Raises `UserError`.
    """
    options = _options(threads)
    if transient_bytes is not None:
        provider.keep_low(options, transient_bytes)
    if trace is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(trace)
        options.optimized_model_filepath = f"{trace}.onnx"
        # Weights in a separate file: a graph of more than 2 GB would be refused.
        where = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(where, f"{trace.name}.weights")
    if weights:
        options.add_session_config_entry("session.disable_prepacking", "1")
    for name, array in (weights or {}).items():
        array.initialize(options, name)
    session = _open_rank(
        graph, options, provider, graphs=graphs, trains=trains, change=change, kind=kind
    )
    session.keep(weights or {})
    return session


def training_session(
    graph: Path,
    threads: int,
    optimised: Path | None = None,
    *,
    provider: Provider = CPU,
    graphs: bool = False,
    transient_bytes: int = 0,
    fused: bool = False,
) -> RankSession:
    """Return the session of one rank's training step, with the collectives, which initialize MPI.

    ``fused`` fuses element-wise arithmetic to minimize passes over arrays.
    The graph that ONNX Runtime optimized is written to ``optimised``. ``graphs`` and
    ``transient_bytes`` are as in `rank_session`. Raises `UserError`.
    """
    options = _options(threads)
    run_in_file_order(options)
    provider.keep_low(options, transient_bytes)
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    if fused:
        return _fused_session(graph, options, provider, graphs=graphs)
    return _open_rank(graph, options, provider, graphs=graphs, trains=True)


def _fused_session(
    graph: Path, options: SessionOptions, provider: Provider, *, graphs: bool
) -> RankSession:
    def load() -> bytes:
        import onnx

        model = onnx.load(graph, load_external_data=False)
        fuse_elementwise(model, provider.fusion)
        return bytes(model.SerializeToString())

    _look_for_data(options, graph.parent)
    register = partial(_add_collectives, options)
    return _open(str(graph), load, options, provider, register, graphs=graphs)


def run_in_file_order(options: SessionOptions) -> None:
    """Run nodes in file order, which determines recomputation (decision 14).

    Only fused nodes run late (decision 45).
    """
    import onnxruntime

    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED


def every_value_session(
    model: bytes, folder: Path, threads: int, *, provider: Provider = CPU
) -> RankSession:
    """Return the session of a rank's graph that was changed to return its internal values.

    Optimization is disabled, so that all values exist. External data is in ``folder``.
    """
    options = _options(threads)
    _disable_optimisation(options)
    _look_for_data(options, folder)
    return _open("a graph", lambda: model, options, provider, lambda: _add_collectives(options))


def made_session(model: bytes, provider: Provider) -> RankSession:
    """Return the session of a small in-memory graph without collectives. Raises `UserError`."""
    return _open("a graph", lambda: model, _options(1), provider, lambda: None)


def one_device_session(
    model: Path,
    provider: Provider = CPU,
    *,
    changed: bytes | None = None,
    optimised: bool = True,
    rounding: str | None = None,
) -> RankSession:
    """Return stock ONNX Runtime's session of the whole model, on all cores or on one device.

    ``changed`` is a serialized model that replaces the file, ``rounding`` replaces that of ranks.
    """
    options = _options(cores())
    if not optimised:
        _disable_optimisation(options)
    if changed is not None:
        _look_for_data(options, model.parent)
    place, given = (str(model), str(model)) if changed is None else ("a graph", changed)
    return _open(place, lambda: given, options, provider, lambda: None, rounding=rounding)


_custom_ops: list[str] = []


def use_custom_ops(libraries: Sequence[str | os.PathLike[str]]) -> None:
    """Register these libraries of operators in all sessions that are opened later."""
    _custom_ops[:] = [os.fspath(path) for path in libraries]


def check_custom_ops(libraries: Sequence[str | os.PathLike[str]]) -> None:
    """Raise `OptionError` unless these libraries of operators exist."""
    for library in libraries:
        if not Path(library).is_file():
            raise OptionError("{custom_ops} {0}: no such file", library)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _options(threads: int) -> SessionOptions:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _FATAL
    # Spinning idle threads would take the cores that other ranks need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _look_for_data(options: SessionOptions, folder: Path) -> None:
    """Set the folder of the external data of a model from memory."""
    where = "session.model_external_initializers_file_folder_path"
    options.add_session_config_entry(where, str(folder))


def _disable_optimisation(options: SessionOptions) -> None:
    import onnxruntime

    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def _open_rank(
    graph: Path,
    options: SessionOptions,
    provider: Provider,
    *,
    graphs: bool = False,
    trains: bool = False,
    change: Change | None = None,
    kind: type[RankSession] | None = None,
) -> RankSession:
    """Return the session of a plan's graph, which runs in the plan's order to save memory."""
    constants: dict[str, HostArray] = {}

    def load() -> str | bytes:
        own = trains and provider.own_kernels
        wanted = partial(_use_own_gradients, provider) if trains else change
        given = graph if wanted is None else _changed(graph, wanted)
        if provider.keeps_order and is_ordered(graph):
            made = _optimise(graph, given, options, provider)
            constants.update(made.constants)
            given = made.model
        given = _use_own_kernels(given, graph) if own else given
        if not isinstance(given, bytes):
            return str(given)
        _look_for_data(options, graph.parent)
        return given

    register = partial(_add_collectives, options)
    # ONNX Runtime copies the constants.
    return _open(str(graph), load, options, provider, register, graphs=graphs, kind=kind)


def _changed(graph: Path, change: Change) -> Path | bytes:
    """Return ``graph`` with a change, before any optimization."""
    import onnx

    model = onnx.load(graph, load_external_data=False)
    if not change(model):
        return graph
    return bytes(model.SerializeToString())


def _use_own_gradients(provider: Provider, model: onnx.ModelProto) -> bool:
    """Replace gradients of weights, and chains of arithmetic; return True if any is."""
    is_changed = provider.own_kernels and use_own_weight_gradients(model)
    return fuse_chains(model, provider.fusion) or is_changed


def _use_own_kernels(given: Path | bytes, graph: Path) -> Path | bytes:
    """Return ``given``, a version of ``graph``, with our kernels of training where they apply."""
    import onnx

    plain = onnx.load(graph, load_external_data=False)
    model = onnx.load_model_from_string(given) if isinstance(given, bytes) else plain
    changes = [use_own_convolutions(model, plain), use_own_gemms(model, plain)]
    if not any(changes):
        return given
    return bytes(model.SerializeToString())


def _optimise(
    graph: Path, given: Path | bytes, options: SessionOptions, provider: Provider
) -> Optimised:
    """Optimize a graph with ONNX Runtime, for a session without further optimization.

    ``given`` is the possibly changed ``graph``.
    """
    own = _options(options.intra_op_num_threads)
    provider.prepare(own)
    _add_collectives(own)
    _add_custom_ops(own)
    _look_for_data(own, graph.parent)
    limit_rounding(own, given, disabled=provider.slow_fusions)
    made = optimise_in_order(given, own)
    _disable_optimisation(options)
    run_in_file_order(options)
    values = [array.value for array in made.constants.values()]
    options.add_external_initializers([*made.constants], values)
    return made


def _add_collectives(options: SessionOptions) -> None:
    options.register_custom_ops_library(str(library_path()))


def _add_custom_ops(options: SessionOptions) -> None:
    for library in _custom_ops:
        options.register_custom_ops_library(library)


def _open(
    place: str,
    load: Callable[[], str | bytes],
    options: SessionOptions,
    provider: Provider,
    register: Callable[[], None],
    *,
    graphs: bool = False,
    kind: type[RankSession] | None = None,
    rounding: str | None = None,
) -> RankSession:
    """Return a session of the model that ``load`` returns; ``load`` may change ``options``.

    Errors begin with ``place``.
    """
    from onnxruntime import InferenceSession

    try:
        kinds = provider.sessions(graphs=graphs)
        provider.prepare(options)
        register()
        _add_custom_ops(options)
        given = load()
        limit_rounding(options, given, rounding, disabled=provider.slow_fusions)
        # No fallback: it would open a second session on the CPU, and print to stdout.
        make = lambda: InferenceSession(given, options, kinds, enable_fallback=0)  # noqa: E731
        session = provider.open_session(make)
        has_text = any(value.type == _TEXT for value in session.get_inputs())
        made = kind or (TextRankSession if has_text else RankSession)
        return made(session, provider, graphs=graphs)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise UserError(f"{place}: {provider.explain(error)}") from None
