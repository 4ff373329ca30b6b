"""The plan directory, checked in full before any rank starts.

``plan.schema.json`` in this folder describes the format. `Plan.load` also checks that layouts fit
the mesh and the shapes, that every rank has its graph, that plan.json is unedited, and that each
file is inside the folder and has its recorded digest.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.mesh_layout import MeshLayout, parse_layout
from tensoropt.runtime.plan.dims import divisor, mean_of, sizes_in_words, sizes_text, terms
from tensoropt.runtime.plan.document import document_sha256, read_json, schema_error
from tensoropt.runtime.plan.entries import Entries, TensorEntry
from tensoropt.runtime.plan.files import check_files, path_inside
from tensoropt.runtime.plan.stages import Stages
from tensoropt.runtime.support.errors import UserError, cause_of, did_you_mean
from tensoropt.runtime.support.files import sha256_of
from tensoropt.runtime.support.options import OptionError
from tensoropt.runtime.support.rank_options import FAST, GivenSizes

__all__ = [
    "SCHEMA",
    "Plan",
    "Tensor",
    "allowed_dims",
    "assumed_dims",
    "dim_names",
    "read_document",
    "settle_dims",
    "tensor_of",
]

SCHEMA = 1

_ROUNDS = re.compile("Quantize|DynamicQuantize|QLinear|QGemm|QAttention")
_QUANTISED = re.compile(f"{_ROUNDS.pattern}|Dequantize|Integer")

T = TypeVar("T")


@dataclass(frozen=True)
class Tensor:
    """An input, output or parameter; ``shape`` is global, a string is a symbolic dimension.

    ``allowed`` has the sizes that the plan allows, by the name of the dimension.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: MeshLayout
    allowed: Mapping[str, range] = field(default_factory=dict, hash=False)

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless the plan allows ``shape`` and the layout can split it."""
        for name, size in zip(self.shape, shape, strict=False):
            sizes = self.allowed.get(name) if isinstance(name, str) else None
            if sizes is not None and size not in sizes:
                raise UserError(
                    f"expected dimension '{name}' {sizes_in_words(sizes)} as the plan has it, "
                    f"got: {size}"
                )
        self.layout.check(shape)

    def local_shape(self) -> tuple[int, ...]:
        """Return the shape of a rank's part; all sizes must be known."""
        return self.layout.local_shape([int(size) for size in self.shape])


@dataclass(frozen=True)
class Plan:
    """A plan directory."""

    folder: Path
    mesh: tuple[int, ...]
    ranks: int
    model_name: str
    model_sha256: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: tuple[Tensor, ...]
    files: Mapping[str, str]
    document: Entries
    dims: Mapping[str, range] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | str) -> Plan:
        """Return the plan in ``folder`` after checking all of it; raises `UserError`."""
        plan = cls.load_description(folder)
        if "target" in plan.document:
            raise UserError(
                f"{folder}: its graphs are for {plan.document['target']}, "
                "expected a plan for ONNX Runtime"
            )
        plan.check_files()
        return plan

    @classmethod
    def load_description(cls, folder: Path | str) -> Plan:
        """Return the plan in ``folder`` after checking plan.json alone; raises `UserError`."""
        if not isinstance(folder, str | os.PathLike):
            raise UserError(f"plan: expected the path of a folder, got: {type(folder).__name__}")
        folder = Path(folder)
        document = read_document(folder)
        error = schema_error(document)
        if error is not None:
            raise UserError(f"{folder / 'plan.json'}: {error}")
        plan = cls.from_document(folder, document)
        _check_counts(plan)
        _check_digest(plan)
        return plan

    @classmethod
    def from_document(cls, folder: Path, document: Entries) -> Plan:
        """Return the plan of ``folder`` for a document that follows the schema.

        Raises `UserError` for a layout that does not fit.
        """
        return _with_place(folder / "plan.json", lambda: _build(folder, document))

    @classmethod
    def read(cls, folder: Path | str) -> Plan:
        """Return a plan that `load` has accepted before, without checks."""
        folder = Path(folder)
        return _build(folder, read_document(folder))

    def settle(self, dims: Mapping[str, GivenSizes]) -> dict[str, int]:
        """Return the sizes in ``dims`` of dimensions that the plan leaves open.

        Raises `OptionError` for sizes other than the plan's, and for names that no dimension has.
        """
        return settle_dims(dims, self.inputs, self.dims)

    def select_dims(self, dims: Mapping[str, GivenSizes]) -> dict[str, GivenSizes]:
        """Return the ``dims`` of dimensions that this plan has."""
        names = dim_names(self.inputs) | self.dims.keys()
        return {name: sizes for name, sizes in dims.items() if name in names}

    def settle_open(self, dims: Mapping[str, GivenSizes]) -> dict[str, int]:
        """Return the sizes in ``dims`` of this plan's dimensions, except those that it fixes."""
        fixed = {name for name, sizes in self.dims.items() if len(sizes) == 1}
        own = self.select_dims(dims)
        return self.settle({name: own[name] for name in own if name not in fixed})

    def graph(self, rank: int, name: str = "") -> Path:
        """Return the path of the rank's ONNX graph, of the one with a ``name`` if there is one."""
        return self.folder / f"rank{rank}{name and '.'}{name}.onnx"

    def file_path(self, name: str) -> Path:
        """Return the path of a file of the plan; raises `UserError` if it leads out."""
        return path_inside(self.folder, name)

    @cached_property
    def staged(self) -> Stages | None:
        """The stages, if there are several; raises `UserError` for an entry that cannot run."""
        entry, training = self.document.get("stages"), self.document.get("training")
        if entry is None:
            return None
        batches = None if training is None else training["micro_batches"]
        return _with_place(self.folder / "plan.json", lambda: Stages.of_entry(entry, batches))

    def stage(self, rank: int) -> int:
        """Return the stage of a rank, 0 without stages."""
        return rank // math.prod(self.mesh) if self.stages > 1 else 0

    def replica(self, rank: int) -> int:
        """Return the replica of a rank, 0 without replicas."""
        return rank // math.prod(self.mesh) if self.replicas > 1 else 0

    def place(self, rank: int) -> int:
        """Return the number of a rank in the mesh of its stage or replica."""
        return rank % math.prod(self.mesh)

    def batches_of(self, rank: int) -> range:
        """Return the batches that a rank takes of a run on replicas, or of a step."""
        replica = self.replica(rank)
        begin = sum(self._counts[:replica])
        return range(begin, begin + self._counts[replica])

    @property
    def batches(self) -> int:
        """The number of batches of the model in a run: 1 without replicas."""
        return sum(self._counts)

    @property
    def run_inputs(self) -> tuple[Tensor, ...]:
        """The inputs of a run. On replicas, they have the samples of all batches."""
        return self._of_run(self.inputs)

    @property
    def run_outputs(self) -> tuple[Tensor, ...]:
        """The outputs of a run, in the form of `run_inputs`."""
        return self._of_run(self.outputs)

    def _of_run(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return tensors with the samples of all batches, whole on the process that runs ranks."""
        if self.replicas == 1:
            return tensors
        mesh = Mesh(self.mesh)
        whole = MeshLayout(mesh, Layout.replicated(mesh))
        return tuple(
            replace(tensor, shape=(self.batches * int(first), *rest), layout=whole)
            for tensor in tensors
            for first, *rest in [tensor.shape]
        )

    def inference_graph(self, rank: int) -> Path:
        """Return the path of the graph that a rank runs in inference."""
        graphs = [""] if self.staged is None else self.staged.graphs[self.stage(rank)]
        return self.graph(rank, graphs[0])

    @property
    def stages(self) -> int:
        """The number of stages, 1 without stages."""
        entry = self.document.get("stages")
        return 1 if entry is None else len(entry["schedule"])

    @property
    def replicas(self) -> int:
        """The number of replicas, 1 without replicas."""
        return len(self._counts)

    @property
    def _counts(self) -> Sequence[int]:
        """The number of batches of each replica."""
        entry = self.document.get("replicas")
        return [1] if entry is None else entry["micro_batches"]

    @property
    def process_bytes(self) -> int:
        """Predicted memory of a rank's process; of its tensors if that is all that is known."""
        predicted = self.document["predicted"]
        return predicted.get("process_bytes", predicted["memory_bytes"])

    @property
    def transient_bytes(self) -> int:
        """Predicted peak bytes of a rank's transient tensors."""
        return self.document["predicted"]["transient_bytes"]

    def rounds(self, rounding: str) -> bool:
        """Return whether an operator rounds intermediate results to 8 bits.

        With ``rounding`` "fast", products with dequantised weights do so, too.
        """
        rows = self.document["strategies"]
        return any(_ROUNDS.match(row["op"]) for row in rows) or (
            rounding == FAST and self.is_quantised
        )

    @property
    def is_quantised(self) -> bool:
        """True if some values are quantised, so that limits of rounding have an effect."""
        return any(_QUANTISED.search(row["op"]) for row in self.document["strategies"])

    @property
    def sha256(self) -> str:
        """The digest of plan.json, which contains the digests of all other files."""
        return self.document.get("sha256", "none")

    def check_unchanged(self, sha256: str, why: str) -> None:
        """Raise `UserError` with ``why`` unless the plan has the digest ``sha256``."""
        if self.sha256 != sha256:
            raise UserError(
                f"{self.folder}: another plan has replaced this one, expected sha256 {sha256}, "
                f"got: {self.sha256} ({why})"
            )

    def check_files(self) -> None:
        """Raise `UserError` unless every file of the plan is unchanged since it was written."""
        check_files(self.folder, self.files)

    def check_model(self, model: Path) -> None:
        """Raise `UserError` unless ``model`` is the file that the plan was compiled from."""
        if not model.is_file():
            raise UserError(f"{model}: no such model")
        found = sha256_of(model)
        if found != self.model_sha256:
            raise UserError(
                f"{model}: not the model that {self.folder} was made from, "
                f"expected {self.model_name} with sha256 {self.model_sha256}, got: {found}"
            )


def read_document(folder: Path) -> Entries:
    """Return plan.json, if its schema version is known here; raises `UserError`."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise UserError(f"{folder}: expected a plan directory, got: {found}")
    path = folder / "plan.json"
    if not path.is_file():  # reading a named pipe would block
        raise UserError(f"{folder}: {_plans_in(folder)}")
    try:
        document: Entries = read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON: {cause_of(error)}") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: expected a JSON object")
    if document.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: schema version is not known to this tensoropt, "
            f"expected {SCHEMA}, got: {document.get('schema')}"
        )
    return document


def _plans_in(folder: Path) -> str:
    """Return the error for a folder without plan.json, which may be a family of plans."""
    plans = sorted(path.parent.name for path in folder.glob("*/plan.json"))
    if not (folder / "family.json").is_file() or not plans:
        return "not a plan directory, it has no plan.json"
    listed = ", ".join(str(folder / name) for name in plans)
    return f"is a family of plans, expected one of them: {listed}"


def _with_place(place: Path | str, build: Callable[[], T]) -> T:
    try:
        return build()
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def _build(folder: Path, document: Entries) -> Plan:
    mesh, dims = tuple(document["mesh"]["shape"]), allowed_dims(document)
    return Plan(
        folder=folder,
        mesh=mesh,
        ranks=document["ranks"],
        model_name=document["model"]["name"],
        model_sha256=document["model"]["sha256"],
        inputs=_tensors(document["inputs"], "input", mesh, dims),
        outputs=_tensors(document["outputs"], "output", mesh, dims),
        parameters=_tensors(document["parameters"], "parameter", mesh, dims),
        files=document["files"],
        document=document,
        dims=dims,
    )


def dim_names(tensors: Iterable[Tensor]) -> set[str]:
    """Return the names of symbolic dimensions, and the names that their arithmetic reads."""
    names = {size for tensor in tensors for size in tensor.shape if isinstance(size, str)}
    return names.union(*map(terms, names))


def settle_dims(
    dims: Mapping[str, GivenSizes], tensors: Iterable[Tensor], allowed: Mapping[str, range]
) -> dict[str, int]:
    """Return the sizes in ``dims`` of dimensions that the plan of ``tensors`` leaves open.

    ``allowed`` has the sizes of the plan, which may be repeated. Raises `OptionError` for others,
    and for names that no dimension has.
    """
    known, settled = dim_names(tensors), dict[str, int]()
    for name, sizes in dims.items():
        own, text = allowed.get(name), str(sizes)
        if own is None and name not in known:
            near = did_you_mean(name, {*known, *allowed})
            raise OptionError("{dims} {0}: no input has such a dimension{1}", name, near)
        if own is not None and text == sizes_text(own[0] if len(own) == 1 else own):
            continue
        if own is not None and (len(own) == 1 or not isinstance(sizes, int)):
            expected = f"{sizes_in_words(own)} as the plan has it"
            raise OptionError("{dims} {0}: expected {1}, got: {2}", name, expected, text)
        if not isinstance(sizes, int):
            expected = "one size, as the plan leaves it open"
            raise OptionError("{dims} {0}: expected {1}, got: {2}", name, expected, text)
        settled[name] = sizes
    return settled


def assumed_dims(tensors: Iterable[Tensor], allowed: Mapping[str, range]) -> dict[str, int]:
    """Return the sizes that the plan was made for: the middle of a range, 1 without one."""
    names = (name for tensor in tensors for size in tensor.shape for name in _names(size))
    return {name: mean_of(allowed.get(name, 1)) for name in names}


def _names(size: int | str) -> list[str]:
    return terms(size) if isinstance(size, str) else []


def allowed_dims(document: Entries) -> dict[str, range]:
    """Return the sizes that a plan allows symbolic dimensions, by name; raises `UserError`."""
    found = {}
    for name, own in document.get("dims", {}).items():
        found[name] = range(own["first"], own["last"] + 1, own["step"])
        if not found[name] or found[name][-1] != own["last"]:
            raise UserError(
                f"dims: '{name}': expected steps that lead from first to last, got: "
                f"{own['step']} from {own['first']} to {own['last']}"
            )
    return found


def _tensors(
    entries: list[TensorEntry], kind: str, mesh: tuple[int, ...], dims: Mapping[str, range]
) -> tuple[Tensor, ...]:
    return tuple(
        _with_place(f"{kind} '{entry['name']}'", partial(tensor_of, entry, mesh, dims))
        for entry in entries
    )


def tensor_of(
    entry: TensorEntry, mesh: tuple[int, ...], dims: Mapping[str, range] | None = None
) -> Tensor:
    """Return the tensor of an entry of plan.json; raises `UserError`.

    ``dims`` are the sizes that the plan allows for symbolic dimensions.
    """
    layout = parse_layout(entry["layout"], mesh).for_shape(entry["shape"])
    dims = dims or {}
    layout.check(entry["shape"])
    for dim, name in enumerate(entry["shape"]):
        if name in dims and divisor(dims[str(name)]) % layout.pieces(dim):
            sizes = sizes_in_words(dims[str(name)])
            raise UserError(f"'{name}' {sizes} does not divide into {layout.pieces(dim)} parts")
    allowed = {name: dims[name] for name in map(str, entry["shape"]) if name in dims}
    return Tensor(entry["name"], entry["dtype"], tuple(entry["shape"]), layout, allowed)


def _check_counts(plan: Plan) -> None:
    path = plan.folder / "plan.json"
    expected = math.prod(plan.mesh) * plan.stages * plan.replicas
    if plan.ranks != expected:
        raise UserError(f"{path}: ranks: expected the mesh's {expected}, got: {plan.ranks}")
    if plan.replicas > 1:
        _check_replicas(plan, path)
    unsliced = [t.name for t in plan.inputs if t.layout.is_partial]
    if unsliced:
        raise UserError(f"{path}: input '{unsliced[0]}': expected R or S, got: a partial layout")
    is_staged_step = plan.stages > 1 and "training" in plan.document
    for rank in range(0 if is_staged_step else plan.ranks):
        name = plan.inference_graph(rank).name
        if name not in plan.files:
            raise UserError(f"{path}: files: expected {name} among them")


def _check_replicas(plan: Plan, path: Path) -> None:
    """Raise `UserError` if the batches of a run cannot be joined along the first dimension."""
    if plan.stages > 1:
        raise UserError(f"{path}: replicas: expected no stages as well")
    ends = () if "training" in plan.document else (*plan.inputs, *plan.outputs)
    for tensor in ends:
        if not tensor.shape or not all(isinstance(size, int) for size in tensor.shape):
            raise UserError(
                f"{path}: replicas: '{tensor.name}': expected samples first, and known sizes"
            )


def _check_digest(plan: Plan) -> None:
    """Raise `UserError` if plan.json was edited: the graphs no longer match it."""
    found, expected = document_sha256(plan.document), plan.document.get("sha256", "none")
    if found != expected:
        raise UserError(
            f"{plan.folder / 'plan.json'}: was changed after it was written, expected sha256 "
            f"{expected}, got: {found} (to use an edited plan, compile it: tensoropt-opt MODEL "
            f"--strategies {plan.folder / 'plan.json'} -o NEW)"
        )
