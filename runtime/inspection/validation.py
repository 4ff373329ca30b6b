"""Validation of a plan: every problem that stops a run, or that a run would meet too late.

Never reads a file outside the plan's folder, even if the plan refers to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tensoropt.runtime.inspection.graphs import RankGraph, Shape, leads_out, read_graph
from tensoropt.runtime.inspection.matching import mismatches
from tensoropt.runtime.plan.costs import COSTS, read_costs
from tensoropt.runtime.plan.document import document_sha256, schema_errors
from tensoropt.runtime.plan.entries import Entries
from tensoropt.runtime.plan.plan import Plan, Tensor, allowed_dims, read_document, tensor_of
from tensoropt.runtime.support.errors import UserError, printable
from tensoropt.runtime.support.files import sha256_of
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Problem", "validate"]


@dataclass(frozen=True)
class Problem:
    """A problem of a plan; ``where`` is a file in its folder, or an entry of plan.json."""

    where: str
    text: str

    def __str__(self) -> str:
        return printable(f"{self.where}: {self.text}" if self.where else self.text)


def validate(folder: Path) -> list[Problem]:
    """Return all problems of the plan in ``folder``; none if it can be run.

    Reads every file that plan.json lists. Returns after the schema errors if there are any.
    """
    try:
        document = _document(folder)
    except UserError as error:
        return [Problem("", str(error))]
    found = [Problem("plan.json", text) for text in schema_errors(document)]
    if found:
        return found
    parts = (_entries, _files, _costs, _graphs)
    return [problem for part in parts for problem in part(folder, document)]


def _document(folder: Path) -> Entries:
    """Return plan.json, which must be a file of the folder itself; raises `UserError`."""
    if folder.is_dir() and leads_out(folder, "plan.json"):
        path = folder / "plan.json"
        raise UserError(f"{path}: leads out of the folder, expected a file inside")
    return read_document(folder)


def _entries(folder: Path, document: Entries) -> Iterator[Problem]:
    """Yield the problems of plan.json itself."""
    digest = document_sha256(document)
    if document.get("sha256") != digest:
        text = f"was changed after it was written, expected {digest}, got: {document.get('sha256')}"
        yield Problem("plan.json: sha256", text)
    mesh = tuple(document["mesh"]["shape"])
    stages = _stages(document)
    replicas = len(document["replicas"]["micro_batches"]) if "replicas" in document else 1
    expected = math.prod(mesh) * stages * replicas
    if expected != document["ranks"]:
        text = f"expected the mesh's {expected}, got: {document['ranks']}"
        yield Problem("plan.json: ranks", text)
    try:
        dims = allowed_dims(document)
    except UserError as error:
        yield Problem("plan.json", str(error))
        dims = {}
    for kind in ("inputs", "outputs", "parameters"):
        for entry in document[kind]:
            yield from _tensor(f"{kind[:-1]} '{entry['name']}'", entry, mesh, dims, kind)
    for row in document["strategies"]:
        for side in ("operands", "results"):
            for number, layout in enumerate(row[side]):
                where = f"node '{row['node']}': {side[:-1]} {number}"
                yield from _layout(where, layout, mesh)
    if "training" in document or "stages" in document:
        yield from _parts_of(folder, document)


def _tensor(
    where: str, entry: Any, mesh: tuple[int, ...], dims: Mapping[str, range], kind: str
) -> Iterator[Problem]:
    try:
        tensor = tensor_of(entry, mesh, dims)
    except UserError as error:
        yield Problem(f"plan.json: {where}", str(error))
        return
    if kind == "inputs" and tensor.layout.is_partial:
        yield Problem(f"plan.json: {where}", "expected R or S, got: a partial layout")


def _layout(where: str, layout: list[str], mesh: tuple[int, ...]) -> Iterator[Problem]:
    from tensoropt.runtime.layout.mesh_layout import parse_layout

    try:
        if layout:  # an omitted operand or result has no layout
            parse_layout(layout, mesh)
    except UserError as error:
        yield Problem(f"plan.json: {where}", str(error))


def _parts_of(folder: Path, document: Any) -> Iterator[Problem]:
    """Yield the problem of the training step, or of the stages of inference."""
    try:
        plan = Plan.from_document(folder, document)
        if "training" in document:
            TrainingPlan.from_plan(plan)
        else:
            _ = plan.staged
    except UserError as error:
        text = str(error).removeprefix(f"{folder / 'plan.json'}: ")
        yield Problem("plan.json", text)


def _files(folder: Path, document: Mapping[str, Any]) -> Iterator[Problem]:
    for name, expected in document["files"].items():
        path = folder / name
        if leads_out(folder, name):
            yield Problem("plan.json: files", f"expected a path inside, got: {name}")
        elif not path.is_file():
            yield Problem(name, "is missing" if not path.exists() else "expected a file")
        elif (found := sha256_of(path)) != expected:
            text = f"was changed after the plan was written, expected sha256 {expected}"
            yield Problem(name, f"{text}, got: {found}")


def _costs(folder: Path, document: Any) -> Iterator[Problem]:
    """Yield the problems of costs.json, which is optional."""
    try:
        if not leads_out(folder, COSTS) and (folder / COSTS).is_file():
            read_costs(Plan.from_document(folder, document))
    except UserError as error:
        yield Problem(COSTS, str(error).removeprefix(f"{folder / COSTS}: "))


def _graphs(folder: Path, document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the graphs of all ranks, for each part of a step."""
    if "stages" in document:
        yield from _staged(folder, document)
        return
    parts = ("", ".update") if "training" in document else ("",)
    for part in parts:
        # Does not enumerate the ranks: plan.json may claim any number of them.
        listed = [name for name in document["files"] if _is_graph(name, part)]
        if len(listed) != document["ranks"]:
            what = f"rank*{part}.onnx"
            text = f"expected {document['ranks']} graphs {what}, got: {len(listed)}"
            yield Problem("plan.json: files", text)
            continue
        yield from _part(folder, document, {rank: [part] for rank in range(document["ranks"])})


def _staged(folder: Path, document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the graphs of stages: their collectives meet in the order of tasks.

    Messages between stages are no part of the graphs.
    """
    try:
        plan = Plan.from_document(folder, cast("Entries", document))
        stages = plan.staged
    except UserError:
        return  # reported for plan.json
    assert stages is not None
    ranks = range(plan.ranks if plan.ranks == plan.stages * math.prod(plan.mesh) else 0)
    names = {rank: [f".{name}" for name in stages.graphs[plan.stage(rank)]] for rank in ranks}
    yield from _part(folder, document, names)


def _is_graph(name: str, part: str) -> bool:
    number = name.removeprefix("rank").removesuffix(f"{part}.onnx")
    return name == f"rank{number}{part}.onnx" and number.isdecimal()


def _part(
    folder: Path, document: Mapping[str, Any], parts: Mapping[int, Sequence[str]]
) -> Iterator[Problem]:
    """Yield the problems of graphs; ``parts`` names the graphs of each rank, in their order."""
    graphs: list[RankGraph] = []
    for rank, own in parts.items():
        for part in own:
            name = f"rank{rank}{part}.onnx"
            if name not in document["files"]:
                yield Problem("plan.json: files", f"expected {name} among them")
            elif not leads_out(folder, name) and (folder / name).is_file():
                try:
                    graphs.append(read_graph(folder / name, rank))
                except UserError as error:
                    yield Problem(name, str(error).removeprefix(f"{name}: "))
    for graph in graphs:
        yield from _weights(folder, document, graph)
    if "training" not in document:
        yield from _ends_of(document, graphs)
    if len(graphs) == sum(map(len, parts.values())):
        by_rank = [[graph for graph in graphs if graph.rank == rank] for rank in parts]
        for graph, text in mismatches(by_rank):
            yield Problem(graph.path.name, text)


def _weights(folder: Path, document: Mapping[str, Any], graph: RankGraph) -> Iterator[Problem]:
    """Yield the weights of a graph that are stored outside the plan, or are cut off."""
    where = graph.path.name
    for tensor, location, offset, length in graph.external():
        if leads_out(folder, location):
            text = f"weight '{tensor}': expected a file inside the plan, got: {location}"
            yield Problem(where, text)
        elif location not in document["files"]:
            yield Problem(where, f"weight '{tensor}': {location} is not listed in plan.json: files")
        elif (folder / location).is_file():
            size = (folder / location).stat().st_size
            if offset + (length or 0) > size:
                text = f"expected {offset + (length or 0)} bytes in {location}, got: {size}"
                yield Problem(where, f"weight '{tensor}': {text}")


def _names(graph: RankGraph) -> tuple[list[str], list[str]]:
    """Return the names of the inputs and outputs of a graph."""
    constants = {tensor.name for tensor in graph.model.graph.initializer}
    given = [value.name for value in graph.model.graph.input if value.name not in constants]
    return given, [value.name for value in graph.model.graph.output]


def _ends_of(document: Mapping[str, Any], graphs: Sequence[RankGraph]) -> Iterator[Problem]:
    """Yield the differences between the inputs and outputs of graphs and plan.json."""
    for graph in graphs:
        yield from _ends(document, graph)
    yield from _missing(document, graphs)


def _stages(document: Mapping[str, Any]) -> int:
    return len(document["stages"]["schedule"]) if "stages" in document else 1


def _missing(document: Mapping[str, Any], graphs: Sequence[RankGraph]) -> Iterator[Problem]:
    """Yield the inputs and outputs of plan.json that the graphs lack.

    The stages have them together. They need not read all inputs.
    """
    stages = _stages(document)
    size = document["ranks"] // stages
    places: dict[int, list[RankGraph]] = {}
    for graph in graphs:
        places.setdefault(graph.rank % size, []).append(graph)
    for own in (own for own in places.values() if len(own) == stages):
        given, made = map(set[str]().union, *map(_names, own))
        for kind, names in (("inputs", given), ("outputs", made)):
            for entry in document[kind] if stages == 1 or kind == "outputs" else ():
                if entry["name"] not in names:
                    text = f"{kind[:-1]} '{entry['name']}' is missing"
                    yield Problem(own[-1].path.name, text)


def _ends(document: Mapping[str, Any], graph: RankGraph) -> Iterator[Problem]:
    """Yield the differences between a graph's inputs and outputs and plan.json."""
    mesh = tuple(document["mesh"]["shape"])
    passed = document["stages"]["passed"] if "stages" in document else ()
    own = {
        entry["name"]: (entry["dtype"], tuple("?" if n is None else n for n in entry["shape"]))
        for entry in passed
    }
    for kind, names in zip(("inputs", "outputs"), _names(graph), strict=True):
        known = dict(own)
        for entry in document[kind]:
            with suppress(UserError):  # reported for plan.json
                tensor = tensor_of(entry, mesh)
                known[tensor.name] = tensor.dtype, _local(tensor)
        listed = {entry["name"] for entry in document[kind]} | own.keys()
        for name in names:
            if name not in listed:
                text = f"{kind[:-1]} '{name}' is not in plan.json, so a run could not feed it"
                yield Problem(graph.path.name, text)
            elif name in known:
                yield from _end(graph, kind[:-1], name, *known[name])


def _end(graph: RankGraph, kind: str, name: str, dtype: str, expected: Shape) -> Iterator[Problem]:
    found, shape = graph.types.get(name, ("?", None))
    same = shape is None or (len(shape) == len(expected) and all(map(_agree, shape, expected)))
    if found != dtype or not same:
        text = f"expected {_type_text(dtype, expected)}, got: {_type_text(found, shape)}"
        yield Problem(graph.path.name, f"{kind} '{name}': {text}")


def _local(tensor: Tensor) -> Shape:
    """Return the shape of a rank's part; symbolic sizes are unchanged."""
    layout = tensor.layout.layout
    sizes = [None if isinstance(n, str) else n for n in tensor.shape]
    parts = layout.local_shape(sizes, tensor.layout.mesh)
    return tuple(n if part is None else part for n, part in zip(tensor.shape, parts, strict=True))


def _agree(found: int | str, expected: int | str) -> bool:
    """Return whether two sizes may be equal: symbolic sizes are not compared by name."""
    return isinstance(found, str) or isinstance(expected, str) or found == expected


def _type_text(dtype: str, shape: Shape | None) -> str:
    return f"{dtype} {'x'.join(map(str, shape)) or 'scalar'}" if shape is not None else dtype
