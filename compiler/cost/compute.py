"""Cost of one op on one rank: a roofline plus a launch overhead, or measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tensoropt.compiler.cost.attention import seen_share
from tensoropt.compiler.cost.device import LEAST_LAUNCH_S, Device
from tensoropt.compiler.cost.experts import reached_share, separate_products
from tensoropt.compiler.cost.kernel import PARTS, Kernel
from tensoropt.compiler.cost.kernels import kernel_of
from tensoropt.compiler.cost.measurements import Operator
from tensoropt.compiler.layout.rule import Joint, Rule, Strategy, split_by
from tensoropt.compiler.layout.sizes import Sizes, end_of, mean_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.arithmetic import ONE_PASS

__all__ = [
    "FREE",
    "VIEWS",
    "Work",
    "known_operator",
    "local_bytes",
    "measured_operator",
    "measured_part",
    "moved_bytes",
    "op_time_s",
    "work_of",
    "work_time_s",
]

FREE = frozenset({"Constant", "NoValue", "Identity"})
"""Ops that ONNX Runtime removes before it runs a graph."""

VIEWS = frozenset(
    {"Flatten", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze", "tensoropt.Barrier"}
)
"""Ops that read no element: ONNX Runtime reuses the buffer."""

SELECTIONS = {
    **dict.fromkeys(("Compress", "Gather", "GatherElements", "GatherND", "Slice"), (0,)),
    "com.microsoft.GatherBlockQuantized": (0, 2, 3),
}
"""Ops that read only the returned elements of the listed operands."""

OVERWRITTEN = frozenset({"TensorScatter"})
"""Ops that read nothing of an operand overwritten by their result."""

VARIANTS: dict[str, tuple[str, int, str]] = {
    "Conv": ("group", 1, "grouped"),
    "ConvTranspose": ("group", 1, "grouped"),
    "Gemm": ("transA", 0, "transA"),
}
"""Operators with another kernel if an attribute is not its default: attribute, default, suffix."""

_PASS = (ONE_PASS, "float32")
_SQUARES = (2.0, 3.0)  # exponents that Pow computes by multiplication


@dataclass(frozen=True)
class Work:
    """Work of an op on one rank.

    ``operator`` is the name under which it is measured, ``dtype`` the type in which it computes,
    and ``bytes`` the size of its operands and results. ``pass_bytes`` are the bytes that it adds to
    its fused pass over arrays, ``None`` if it is part of no pass.
    """

    operator: str
    dtype: str
    flops: float
    bytes: float
    pass_bytes: float | None = None


def work_of(info: OpInfo, rule: Rule, strategy: Strategy, mesh: Mesh) -> Work:
    """Return the work of one rank of the op under ``strategy``.

    An open dimension counts as the mean of its range, or as 1 without a range.
    """
    flops, moved = _flops(rule, strategy, mesh), float(_bytes(info, strategy, mesh))
    in_pass = _pass_bytes(info, strategy, mesh)
    return Work(_measured_as(info), _computed_in(info), flops, moved, in_pass)


def measured_operator(info: OpInfo, device: Device) -> Operator | None:
    """Return the measurement of an op's operator in its type, or of the plain operator.

    For a part of a fused pass, return the measurement of passes. A few look-ups.
    """
    if not device.operators:
        return None
    in_pass = None if info.in_memory is None else device.operators.get(_PASS)
    return in_pass or known_operator(_measured_as(info), _computed_in(info), device)


def known_operator(name: str, dtype: str, device: Device) -> Operator | None:
    """Return the measurement of ``name`` in type ``dtype``, or of the plain operator."""
    plain = name.partition(":")[0]
    return device.operators.get((name, dtype)) or device.operators.get((plain, dtype))


def op_time_s(info: OpInfo, rule: Rule, strategy: Strategy, mesh: Mesh, device: Device) -> float:
    """Return the time of the op on one rank under ``strategy``."""
    if info.name in FREE:
        return 0.0
    kernel = kernel_of(info, rule, strategy, mesh) if device.kernels else None
    launches_s = device.launch_overhead_s * separate_products(info, strategy, mesh)
    return work_time_s(work_of(info, rule, strategy, mesh), device, kernel) + launches_s


def measured_part(
    info: OpInfo, rule: Rule, strategy: Strategy, mesh: Mesh, device: Device
) -> str | None:
    """Return the part of a step that the op belongs to, ``None`` if no table measures it."""
    kernel = kernel_of(info, rule, strategy, mesh) if device.kernels else None
    if kernel is None or device.kernel_table(kernel.family, _computed_in(info)) is None:
        return None
    return PARTS[kernel.family]


def work_time_s(work: Work, device: Device, kernel: Kernel | None = None) -> float:
    """Return the time of one op on one rank.

    Roofline (Williams, Waterman, Patterson, 2009): the launch plus the longer of two times. One is
    the time to compute at the peak rate of the operands' type times the achievable efficiency, the
    other the time to move operands and results once through memory. A kernel measured by its sizes
    takes a factor of the roofline at the peak rate. An operator measured in this
    type has its own line in FLOPs and bytes instead. A fused pass over arrays has a line in all
    bytes that its steps add to it; if passes were not measured, each step runs on its own.
    """
    one_pass = None if work.pass_bytes is None else device.operators.get(_PASS)
    if one_pass is not None:
        return one_pass.time_s(0.0, work.pass_bytes or 0.0)
    known = known_operator(work.operator, work.dtype, device)
    if known is not None:
        return known.time_s(work.flops, work.bytes)
    host_s = device.host_launch_s
    if work.operator in VIEWS:
        return device.launch_overhead_s if host_s is None else max(host_s, LEAST_LAUNCH_S)
    flops_s = work.flops / device.peak_flop_per_s(work.dtype)
    bytes_s = work.bytes / device.memory_bandwidth_bytes_per_s
    table = None if kernel is None else device.kernel_table(kernel.family, work.dtype)
    if kernel is None or table is None:
        kernel_s = max(flops_s / device.contraction_efficiency, bytes_s) + device.launch_overhead_s
    else:
        roofline_s = max(kernel.share * flops_s, bytes_s) + device.launch_overhead_s
        kernel_s = table.factor(kernel.sizes) * roofline_s
    return max(kernel_s, host_s or 0.0)


def _measured_as(info: OpInfo) -> str:
    """Return the name under which an op is measured: ``Conv``, ``Conv:grouped``."""
    if info.name == "Pow":
        exponent = info.literal(1)
        is_square = exponent is not None and exponent.size == 1 and exponent.item() in _SQUARES
        return "Pow:square" if is_square else "Pow"
    attribute, default, word = VARIANTS.get(info.name, ("", None, ""))
    special = bool(attribute) and info.attribute(attribute, default) != default
    return f"{info.name}:{word}" if special else info.name


def _flops(rule: Rule, strategy: Strategy, mesh: Mesh) -> float:
    """Return the floating-point operations of the busiest rank, with those on padding."""
    axes = zip(mesh.shape, strategy.roles, strict=True)
    split: dict[int, tuple[int, ...]] = {}
    together = 1
    for extent, role in axes:
        if isinstance(role, int):
            split[role] = (*split.get(role, ()), extent)
        elif isinstance(role, Joint):
            together *= extent
    pieces = {number: math.prod(extents) for number, extents in split.items()}
    flops = rule.flops_per_point * rule.points / (math.prod(pieces.values()) * together)
    for number, extents in split.items():
        factor = rule.factors[number]
        if factor.has_padding(extents):
            flops *= factor.part(extents) * pieces[number] / mean_of([factor.size])
    return flops * _busiest(rule, strategy, mesh)


def _busiest(rule: Rule, strategy: Strategy, mesh: Mesh) -> float:
    """Return the work of the busiest rank over the mean of all ranks."""
    share = 1.0
    for group in rule.growing:
        axes = (axis for axis, role in enumerate(strategy.roles) if split_by(role) == group)
        share *= 2.0 - 1.0 / mesh.extent(tuple(axes))
    return min(share, 2.0)


def _bytes(info: OpInfo, strategy: Strategy, mesh: Mesh) -> float:
    """Return the bytes that one rank reads and writes.

    Experts that no token chooses are not read, nor keys outside the window of all queries. Captures
    of control-flow bodies are not counted; their layouts follow the operands. Only the new values
    of a result that overwrites an operand are written.
    """
    read: list[float] = [*_sizes(info.operands, strategy.operands[: len(info.operands)], mesh)]
    made: list[float] = [*_sizes(info.results, strategy.results, mesh)]
    for result, past, new in info.in_place:
        made[result] = min(made[result], read[new])
        read[past] = 0 if info.name in OVERWRITTEN else read[past]
    written = sum(made)
    for index in SELECTIONS.get(info.name, ()):
        if index < len(read):
            read[index] = min(read[index], written)
    for index, share in {**seen_share(info), **reached_share(info, strategy, mesh)}.items():
        if index < len(read):
            read[index] *= share
    return sum(read) + written


def _pass_bytes(info: OpInfo, strategy: Strategy, mesh: Mesh) -> float | None:
    if info.in_memory is None:
        return None
    tensors = (*info.operands, *info.results)
    layouts = (*strategy.operands[: len(info.operands)], *strategy.results)
    sizes = list(_sizes(tensors, layouts, mesh))
    return float(sum(sizes[position] for position in info.in_memory))


def local_bytes(tensor: TensorInfo, layout: Layout, mesh: Mesh) -> int:
    """Return the bytes of one rank's part at the end of all ranges, 1 without a range."""
    return _elements(tensor.sizes, layout, mesh)[1] * tensor.item_bytes


def moved_bytes(tensor: TensorInfo, layout: Layout, mesh: Mesh) -> int:
    """Return the bytes of one rank's part at the mean of all ranges."""
    return _elements(tensor.sizes, layout, mesh)[0] * tensor.item_bytes


@lru_cache(maxsize=1 << 16)  # few distinct parts among the options of all ops
def _elements(sizes: Sizes, layout: Layout, mesh: Mesh) -> tuple[int, int]:
    """Return the elements of one rank's part, at the mean and at the end of all ranges."""
    local = layout.local_shape(sizes, mesh)
    return mean_of(local), end_of(local)


def _sizes(
    tensors: tuple[TensorInfo | None, ...], layouts: tuple[Layout, ...], mesh: Mesh
) -> Iterator[int]:
    for tensor, layout in zip(tensors, layouts, strict=True):
        yield 0 if tensor is None else moved_bytes(tensor, layout, mesh)


def _computed_in(info: OpInfo) -> str:
    """Return the type in which the op computes: of its first operand, else of its first result."""
    present = [tensor for tensor in (*info.operands, *info.results) if tensor is not None]
    return present[0].dtype if present else "float32"
