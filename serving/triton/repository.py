"""A model repository for Triton's Python backend: a plan, its configuration and `model.py`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.serving.batching.sizes import Batching, batching_of
from tensoropt.serving.model import VERSION, specs_of
from tensoropt.serving.opening import restrict_dims
from tensoropt.serving.options import ServingOptions
from tensoropt.serving.protocol.tensors import TensorSpec
from tensoropt.serving.triton.backend import OPTIONS

__all__ = ["CONFIG", "config_text", "export"]

CONFIG = "config.pbtxt"

_MODEL = """\
# Triton's Python backend loads this file; tensoropt must be installed for its Python.
import triton_python_backend_utils as triton

from tensoropt.serving.triton.backend import model_class

TritonPythonModel = model_class(triton)
"""


def export(
    repository: Path,
    plans: Mapping[str, Path],
    session_options: SessionOptions,
    options: ServingOptions,
) -> None:
    """Write each plan into ``repository`` as a model, or as the next version of a model.

    All plans are checked first, and a model appears only once it is complete. Raises `UserError` if
    a plan cannot be served, or differs in inputs, outputs or batches from the model of its name.
    """
    models = [_model(repository, name, plans[name], session_options, options) for name in plans]
    for model in models:
        model.write()


@dataclass(frozen=True)
class _Model:
    """A plan that becomes a version of the model in ``folder``."""

    folder: Path
    plan: Path
    config: str
    session_options: SessionOptions

    def write(self) -> None:
        """Write the files to a temporary folder, and rename it. Raises `UserError`."""
        is_new = not self.folder.exists()
        try:
            place = self.folder
            if not is_new:
                versions = [int(p.name) for p in self.folder.iterdir() if p.name.isdecimal()]
                place = self.folder / str(max(versions, default=0) + 1)
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent, prefix=".export.") as name:
                aside = Path(name) / "model"
                version = aside / VERSION if is_new else aside
                version.mkdir(parents=True)
                _copy(self.plan, version / "plan")
                (version / "model.py").write_text(_MODEL, encoding="utf-8")
                facts = json.dumps(asdict(self.session_options), indent=2)
                (version / OPTIONS).write_text(facts + "\n", encoding="utf-8")
                if is_new:
                    (aside / CONFIG).write_text(self.config, encoding="utf-8")
                aside.rename(place)
        except OSError as error:
            raise UserError(f"--export-triton {self.folder.parent}: {cause_of(error)}") from None


def _copy(source: Path, target: Path) -> None:
    """Copy a folder; unlike copytree, raise the first OSError immediately."""
    target.mkdir()
    for path in source.iterdir():
        copy = _copy if path.is_dir() else shutil.copy2
        copy(path, target / path.name)


def _model(
    repository: Path,
    name: str,
    folder: Path,
    session_options: SessionOptions,
    options: ServingOptions,
) -> _Model:
    plan = Plan.load(folder)
    own = restrict_dims(plan, session_options)
    dims = plan.settle(own.dims)
    inputs, outputs = specs_of(plan.run_inputs, dims), specs_of(plan.run_outputs, dims)
    for spec in (*inputs, *outputs):
        if spec.dtype == "bfloat16":
            raise UserError(f"{folder}: '{spec.name}': Triton's Python backend has no bfloat16")
    batching = batching_of(inputs, outputs, options.max_batch) if options.is_batching else None
    config = config_text(name, inputs, outputs, batching, options.batch_delay_s)
    model = repository / name
    if model.exists():
        path = model / CONFIG
        if not path.is_file() or path.read_text(encoding="utf-8") != config:
            raise UserError(
                f"{model}: is another model, expected the same {CONFIG} to add a version, or "
                f"another NAME={folder}"
            )
    return _Model(model, folder, config, own)


def config_text(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    batching: Batching | None,
    delay_s: float,
) -> str:
    """Return Triton's configuration of a model; shapes omit the number of samples."""
    first = 0 if batching is None else 1
    lines = [
        f"name: {json.dumps(name)}",
        'backend: "python"',
        f"max_batch_size: {batching.size if batching else 0}",
        *(_tensor("input", spec, first) for spec in inputs),
        *(_tensor("output", spec, first) for spec in outputs),
        # The ranks are separate processes, on the devices of the plan.
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
    # Triton has no tensors without dimensions: it reshapes a tensor of one element.
    reshape = "" if sizes else ", reshape: { shape: [ ] }"
    dims = ", ".join(map(str, sizes or [1]))
    return (
        f"{kind} [ {{ name: {json.dumps(spec.name)}, data_type: {datatype}, "
        f"dims: [ {dims} ]{reshape} }} ]"
    )
