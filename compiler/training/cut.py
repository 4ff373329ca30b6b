"""Cut the program of a training step, or of inference in stages, into the programs of its graphs.

Without stages a step has two, and only gradients pass from the first to the second. State that the
update writes is therefore never read afterwards, and the gradient program can run several times or
without the update. With stages, activations and their gradients pass between the graphs of chunks
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np

from tensoropt.compiler.shapes.refine import update_signature
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.names import free_name
from tensoropt.compiler.training.division import Division, body, divide
from tensoropt.dialects import onnx
from tensoropt.dialects.build import Build
from tensoropt.dialects.collectives import collective
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.plan.graphs import UPDATE, graph_name

__all__ = [
    "Parts",
    "Passed",
    "argument_names",
    "bytecode",
    "copy_of",
    "cut_step",
    "drop_unused_arguments",
    "result_names",
    "updated_names",
]


@dataclass(frozen=True)
class Passed:
    """A value, with the type of a rank's part, that passes from a graph to others."""

    name: str
    type: ir.Type
    graph: str
    read_by: tuple[str, ...]


@dataclass(frozen=True)
class Parts:
    """The programs of a step, or of inference in stages, in an order in which they can run.

    ``names`` has the name of each gradient by its parameter's name; it is an argument of an update.
    ``passed`` are the other values that pass between programs. ``stages`` has the stage of each
    program, if there are several.
    """

    modules: Mapping[str, ir.Module]
    names: Mapping[str, str]
    passed: Sequence[Passed] = ()
    stages: Mapping[str, int] | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters by the names of their gradients."""
        return {name: parameter for parameter, name in self.names.items()}

    def of_stage(self, stage: int) -> dict[str, ir.Module]:
        """Return the programs of a stage, all of them without stages."""
        stages = self.stages
        return {
            name: module
            for name, module in self.modules.items()
            if stages is None or stages[name] == stage
        }


def argument_names(module: ir.Module) -> list[str]:
    """Return the names of the arguments of `@main`, in order."""
    return [keys.NAME.of(own) for own in onnx.carried(onnx.function(module), "arg_attrs")]


def result_names(module: ir.Module) -> list[str]:
    """Return the names of the results of `@main`, in order."""
    return [keys.NAME.of(own) for own in onnx.carried(onnx.function(module), "res_attrs")]


def updated_names(module: ir.Module) -> list[str]:
    """Return the names of the arguments that `@main` returns new values for, in that order."""
    attributes = onnx.carried(onnx.function(module), "res_attrs")
    return [keys.UPDATES.of(own) for own in attributes if keys.UPDATES.on(own)]


def cut_step(module: ir.Module) -> Parts:
    """Return the parts of a (partitioned) program; ``module`` is left unchanged.

    Literals, and values computed only from literals and from scalar inputs of the step, are
    duplicated in each part that reads them; with stages, so are values computed from parameters.
    Linear in the operations, times the number of graphs. Raises RuntimeError if other values than
    gradients would have to pass to the update.
    """
    return _Cut(module).parts()


def copy_of(module: ir.Module) -> ir.Module:
    """Return a copy of ``module`` in its context, including node names."""
    return ir.Module.parse(bytecode(module), module.context)


def bytecode(module: ir.Module) -> bytes:
    """Return ``module`` as bytes; equal modules have equal bytes."""
    written = BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def drop_unused_arguments(module: ir.Module) -> None:
    """Remove the arguments of `@main` that nothing reads."""
    main = onnx.function(module)
    block, attributes = main.regions[0].blocks[0], onnx.carried(main, "arg_attrs")
    for index in reversed(range(len(attributes))):
        if not _is_used(block.arguments[index]):
            block.erase_argument(index)
            del attributes[index]
    with module.context, ir.Location.unknown():
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
        update_signature(module)


_Place = tuple[int, int]
"""A result of an operation: the positions of both."""


class _Cut:
    """The cut of one step: the values that pass between its graphs, and their names."""

    def __init__(self, module: ir.Module) -> None:
        self.module, self.main = module, onnx.function(module)
        self.division: Division = divide(module)
        self.update = self.division.update
        self.ops = body(self.main)
        self.places: dict[ir.Value, _Place] = {
            value: (position, number)
            for position, op in enumerate(self.ops)
            for number, value in enumerate(op.results)
        }
        self.taken = {*argument_names(module), *result_names(module)}
        self.gradients = {  # by parameter
            keys.GRADIENT_OF.of(op.attributes): (position, 0)
            for position, op in enumerate(self.ops)
            if keys.GRADIENT_OF.on(op.attributes)
        }
        names = {name: free_name(f"{name}.grad", self.taken) for name in self.gradients}
        self.names = names
        self.parameters = {name: parameter for parameter, name in names.items()}
        self.passing = {place: names[name] for name, place in self.gradients.items()}
        self.readers: dict[_Place, set[int]] = {place: set() for place in self.passing}
        self._find_passing()

    def parts(self) -> Parts:
        division, modules = self.division, dict[str, ir.Module]()
        self._check_caches()
        stages: dict[str, int] | None = None
        for number, graph in enumerate(division.graphs[: self.update]):
            part = self._part(number)
            if result_names(part):
                modules[graph] = part
        if division.stages is not None:
            stages = dict(zip(division.graphs, division.stages, strict=False))
        if self.update is not None:
            modules |= self._updates(self.update, stages)
        return Parts(modules, self.names, self._passed(), stages)

    def _updates(self, update: int, stages: dict[str, int] | None) -> dict[str, ir.Module]:
        """Return the update, or the update of each stage, which ``stages`` then lists."""
        if stages is None:
            return {UPDATE: self._part(update)}
        self._check_state()
        modules = {}
        for stage in sorted(set(stages.values())):
            name = graph_name(UPDATE, stage)
            modules[name], stages[name] = self._part(update, stage), stage
            if not result_names(modules[name]):
                raise UserError(
                    f"--stages: stage {stage} has no parameter to train, expected fewer stages"
                )
        return modules

    def _find_passing(self) -> None:
        """Find the values that pass between graphs; refuse those to or from the update."""
        numbers, gradients = self.division.numbers, {*self.passing}
        for position, op in enumerate(self.ops):
            own = numbers[position]
            for value in onnx.read_values(op):
                place = self.places.get(value)
                made = None if place is None else numbers[place[0]]
                if place is None or made is None or own in (None, made):
                    continue
                if onnx.is_barrier(op) and value != op.operands[0]:
                    continue  # other graphs run before or after all of this one
                if self.update in (own, made) and place not in gradients:
                    raise self._odd(place[0], is_update=own == self.update)
                if place not in self.passing:
                    label = onnx.node_name(self.ops[place[0]]) or self.ops[place[0]].name
                    self.passing[place] = free_name(f"{label}.passed", self.taken)
                self.readers.setdefault(place, set()).add(own)

    def _odd(self, position: int, *, is_update: bool) -> RuntimeError:
        op, part = self.ops[position], "update" if is_update else "gradients"
        return RuntimeError(
            f"the {part} part of a training step needs '{onnx.node_name(op) or op.name}' "
            "of the other, expected gradients alone to pass between them"
        )

    def _passed(self) -> list[Passed]:
        graphs, gradients = self.division.graphs, set(self.gradients.values())
        found = []
        for place, name in self.passing.items():
            number = self.division.numbers[place[0]]
            if place not in gradients and number is not None:
                value = self.ops[place[0]].results[place[1]]
                read_by = tuple(graphs[reader] for reader in sorted(self.readers[place]))
                found.append(Passed(name, value.type, graphs[number], read_by))
        return found

    def _check_caches(self) -> None:
        """Refuse a cache that another graph reads than the one that returns it."""
        numbers, end = self.division.numbers, self.main.regions[0].blocks[0].operations[-1]
        results = onnx.carried(self.main, "res_attrs")
        written = {
            keys.CACHE.of(own): numbers[self.places[value][0]]
            for value, own in zip(end.operands, results, strict=True)
            if keys.CACHE.on(own) and value in self.places
        }
        names = {value: keys.NAME.of(own) for value, own in onnx.arguments(self.main)}
        caches = {value: name for value, name in names.items() if name in written}
        for number, op in zip(numbers, self.ops, strict=True) if caches else ():
            for value in onnx.read_values(op):
                if value in caches and number != written[caches[value]]:
                    raise UserError(
                        f"--stages: the cache '{caches[value]}' is read in another stage than the "
                        "one that returns it, expected fewer stages"
                    )

    def _check_state(self) -> None:
        """Refuse running statistics that another graph reads than the one that changes them."""
        numbers = self.division.numbers
        arguments = onnx.arguments(self.main)
        written = {}
        end = self.main.regions[0].blocks[0].operations[len(self.ops)].operation
        results = onnx.carried(self.main, "res_attrs")
        for value, own in zip(end.operands, results, strict=True):
            if keys.UPDATES.on(own) and value in self.places:
                written[keys.UPDATES.of(own)] = numbers[self.places[value][0]]
        for value, own in arguments:
            name = keys.NAME.of(own)
            if keys.STATE.get(own) == "buffer":
                readers = {self._position_number(use.owner.operation) for use in value.uses}
                if readers - {written.get(name)}:
                    raise UserError(
                        f"--stages: the running statistic '{name}' is read in another chunk than "
                        "the one that changes it, expected fewer stages, or it frozen"
                    )

    def _position_number(self, op: ir.Operation) -> int | None:
        place = self.places.get(op.results[0]) if len(op.results) else None
        return None if place is None else self.division.numbers[place[0]]

    def _part(self, number: int, stage: int | None = None) -> ir.Module:
        """Return the program of graph ``number``; of an update, the part of ``stage`` if given."""
        part = copy_of(self.module)
        with part.context, ir.Location.unknown():
            _Part(self, part, number, stage).keep()
        return part

    def stage_of(self, name: str) -> int:
        """Return the stage that updates a parameter: the one that computes its gradient."""
        number = self.division.numbers[self.gradients[name][0]]
        assert number is not None
        assert self.division.stages is not None
        return self.division.stages[number]


class _Part:
    """A copy of the step, from which everything goes that does not belong to one graph."""

    def __init__(self, cut: _Cut, module: ir.Module, number: int, stage: int | None) -> None:
        self.cut, self.module, self.number, self.stage = cut, module, number, stage
        self.main = onnx.function(module)
        self.block, self.ops = self.main.regions[0].blocks[0], body(self.main)
        self.end = self.block.operations[len(self.ops)].operation
        self.arguments = onnx.carried(self.main, "arg_attrs")
        self.given: dict[ir.Value, str] = {}  # values of other graphs, with their names

    def keep(self) -> None:
        numbers, own = self.cut.division.numbers, list(self._own_results())
        for place, name in self.cut.passing.items():
            value, made = self.ops[place[0]].results[place[1]], numbers[place[0]]
            attributes = ir.DictAttr.get(keys.NAME.item(name))
            if made == self.number:
                own.append((value, attributes))
            elif self.number in self.cut.readers[place]:
                argument = self.block.add_argument(value.type, ir.Location.unknown())
                value.replace_all_uses_with(argument)
                self.arguments.append(attributes)
                self.given[argument] = name
        self._pass_barriers()
        self._sum_over_stages()
        with ir.InsertionPoint(self.end):
            ir.Operation.create("func.return", operands=[value for value, _ in own])
        self.end.erase()
        self.main.attributes["res_attrs"] = ir.ArrayAttr.get([result for _, result in own])
        # Operations have no effect other than their results, so unused ones can go.
        for op in reversed(body(self.main)):
            if not any(map(_is_used, op.results)):
                op.erase()
        self.main.attributes["arg_attrs"] = ir.ArrayAttr.get(self.arguments)
        drop_unused_arguments(self.module)

    def _own_results(self) -> Iterable[tuple[ir.Value, ir.DictAttr]]:
        """Yield the results of the step that the graph computes, and their attributes."""
        numbers = dict(zip(self.ops, self.cut.division.numbers, strict=True))
        owners = {keys.NAME.of(own): keys.OF.get(own) for own in self.arguments}
        results = onnx.carried(self.main, "res_attrs")
        for value, result in zip(self.end.operands, results, strict=True):
            made = onnx.owner(value)
            number = 0 if made is None else numbers[made] or 0
            if number != self.number:
                continue
            if self.stage is not None:
                name = keys.UPDATES.of(result)
                if self.cut.stage_of(owners[name] or name) != self.stage:
                    continue
            yield value, result

    def _pass_barriers(self) -> None:
        """Remove barriers that wait for an operation of another graph."""
        own = zip(self.ops, self.cut.division.numbers, strict=True)
        inside = {op for op, number in own if number == self.number}
        for op in self.ops:
            if op in inside and onnx.is_barrier(op) and onnx.owner(op.operands[1]) not in inside:
                op.results[0].replace_all_uses_with(op.operands[0])

    def _sum_over_stages(self) -> None:
        """Let the norm of all gradients add the squares of this stage, and the sums of others."""
        if self.stage is None:
            return
        for op in self.ops:
            if keys.NORM.on(op.attributes):
                total = op.results[0]
                own = [term for term in op.operands if self._stage_of(term) == self.stage]
                with ir.InsertionPoint.after(op), op.location:
                    opset = onnx.opsets(self.module)[""]
                    make = Build(op.location, opset, keys.PHASE.item("update"))
                    sum_ = make.onnx("Sum", own, total.type) if own else _zero(make, total)
                    settings = {"reduction": "sum"}
                    reduced = collective("all_reduce", sum_, (), settings, op.location)
                made = onnx.owner(reduced)
                assert made is not None
                keys.PHASE.set(made.attributes, "update")
                keys.STAGES.set(made.attributes, True)
                total.replace_all_uses_with(reduced)

    def _stage_of(self, term: ir.Value) -> int:
        """Return the stage of the gradient that ``term`` is computed from."""
        left, seen = [term], {term}
        while left:
            value = left.pop()
            if value in self.given:
                return self.cut.stage_of(self.cut.parameters[self.given[value]])
            made = onnx.owner(value)
            new = [v for v in ([] if made is None else made.operands) if v not in seen]
            seen.update(new)
            left.extend(new)
        raise RuntimeError("a term of the norm depends on no gradient")


def _zero(make: Build, like: ir.Value) -> ir.Value:
    element = element_of(str(ir.RankedTensorType(like.type).element_type))
    assert element is not None
    return make.constant(np.zeros((), element.dtype))


def _is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None
