"""A model repository for Triton's Python backend: a plan, its configuration, and what runs it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError
from tensoropt.serving.batching.sizes import Batching, batching_of
from tensoropt.serving.model import VERSION, ServingOptions, specs_of
from tensoropt.serving.protocol.tensors import TensorSpec
from tensoropt.serving.triton.backend import OPTIONS

__all__ = ["config_text", "export"]

_MODEL = """\
# Triton's Python backend loads this file; tensoropt must be installed for its Python.
import triton_python_backend_utils as triton

from tensoropt.serving.triton.backend import model_class

TritonPythonModel = model_class(triton)
"""


def export(
    repository: Path,
    name: str,
    folder: Path,
    session_options: Mapping[str, Any],
    options: ServingOptions,
) -> None:
    """Write the model ``name`` of the plan in ``folder`` into ``repository``.

    Raises `UserError` where there is such a model already, or the plan cannot be served.
    """
    plan = Plan.load(folder)
    dims = session_options["dims"]
    inputs, outputs = specs_of(plan.inputs, dims), specs_of(plan.outputs, dims)
    for spec in (*inputs, *outputs):
        if spec.dtype == "bfloat16":
            raise UserError(f"{folder}: '{spec.name}': Triton's Python backend has no bfloat16")
    batching = batching_of(inputs, outputs, options.max_batch) if options.is_batching else None
    model = repository / name
    if model.exists():
        raise UserError(f"{model}: expected no such folder, got: one that is there")
    version = model / VERSION
    version.mkdir(parents=True)
    shutil.copytree(folder, version / "plan")
    (version / "model.py").write_text(_MODEL, encoding="utf-8")
    facts = json.dumps(dict(session_options), indent=2)
    (version / OPTIONS).write_text(facts + "\n", encoding="utf-8")
    text = config_text(name, inputs, outputs, batching, options.batch_delay_s)
    (model / "config.pbtxt").write_text(text, encoding="utf-8")


def config_text(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    batching: Batching | None,
    delay_s: float,
) -> str:
    """Return Triton's configuration of a model: sizes of samples are none of its tensors'."""
    first = 0 if batching is None else 1
    lines = [
        f"name: {json.dumps(name)}",
        'backend: "python"',
        f"max_batch_size: {batching.size if batching else 0}",
        *(_tensor("input", spec, first) for spec in inputs),
        *(_tensor("output", spec, first) for spec in outputs),
        # The ranks are processes of their own, on devices that the plan counts on.
        "instance_group [ { count: 1, kind: KIND_CPU } ]",
    ]
    if batching is not None:
        lines.append(
            f"dynamic_batching {{ preferred_batch_size: [ {batching.size} ], "
            f"max_queue_delay_microseconds: {round(delay_s * 1e6)} }}"
        )
    return "\n".join(lines) + "\n"


def _tensor(kind: str, spec: TensorSpec, first: int) -> str:
    sizes = [-1 if isinstance(size, str) else size for size in spec.shape[first:]]
    datatype = "TYPE_STRING" if spec.datatype == "BYTES" else f"TYPE_{spec.datatype}"
    # A tensor without dimensions is one of one element to Triton, reshaped on its way.
    reshape = "" if sizes else ", reshape: { shape: [ ] }"
    dims = ", ".join(map(str, sizes or [1]))
    return (
        f"{kind} [ {{ name: {json.dumps(spec.name)}, data_type: {datatype}, "
        f"dims: [ {dims} ]{reshape} }} ]"
    )
