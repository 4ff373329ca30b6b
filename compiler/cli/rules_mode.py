"""`--check-rules`: proof of user-defined rules, as the tests prove the built-in rules."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.pipeline.driver import load
from tensoropt.compiler.pipeline.phases import Compilation
from tensoropt.compiler.report.table import render
from tensoropt.compiler.sharding.proof.onnx_node import Array, node_of, run_node
from tensoropt.compiler.sharding.proof.proving import prove
from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.rule_reader import RuleReader
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.progress import Progress
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import PassError
from tensoropt.runtime.plan.dims import parse_ranges

__all__ = ["run_check_rules"]

_SECONDS = 60
_HEADER = ["node", "mesh", "strategies", "largest difference", "operator"]


def run_check_rules(args: argparse.Namespace) -> int:
    """Prove every user-defined rule, and print the largest difference of its strategies."""
    say = Progress(asked=args.progress)
    say(f"reading {args.input}")
    module = load(Path(args.input), parse_ranges(args.dim))
    libraries = tuple(str(_library(path)) for path in args.custom_ops)
    try:
        Compilation().advance(module, "rules", say)
    except PassError as error:
        raise UserError(f"{args.input}: {error}") from error
    rows: list[Sequence[str]] = []
    with module.context, ir.Location.unknown():
        for op, info, rule in _foreign(module):
            say(f"proving the rules: {onnx.node_name(op) or op.name}")
            rows += _prove(f"{args.input}: ", op, info, rule, _runner(module, op, libraries))
    if not rows:
        raise UserError(
            f"{args.input}: only has built-in rules, expected rules in the model or --rules"
        )
    write_text(args.output, render("", _HEADER, rows, colour=sys.stdout.isatty()).lstrip("\n"))
    return 0


def _library(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"--custom-ops {path}: no such file")
    return path.resolve()


def _foreign(module: ir.Module) -> Iterator[tuple[ir.Operation, OpInfo, Rule]]:
    """Yield one operation for each rule that is not the built-in rule of its operator."""
    versions, rules, seen = onnx.opsets(module), RuleReader(), set[tuple[OpInfo, Rule]]()
    for view in onnx.function(module).regions[0].blocks[0]:
        op = view.operation
        if not onnx.is_onnx(op) or op.name == onnx.NO_VALUE or len(op.regions):
            continue
        info = describe(op, versions)
        rule, own = rules.read(op, info), rule_for(info)
        # A rule with built-in code splits less than the built-in rule, which the tests prove.
        if rule != own and rule.localize is None and (info, rule) not in seen:
            seen.add((info, rule))
            yield op, info, rule


class _Runner:
    """Runs an operation in the child process, as a custom library may crash."""

    def __init__(
        self, op: ir.Operation, versions: dict[str, int], libraries: tuple[str, ...]
    ) -> None:
        self.node = node_of(op).SerializeToString()
        self.versions, self.libraries = versions, libraries

    def __call__(self, operands: Sequence[Array | None]) -> list[Array | None]:
        given = self.node, self.versions, list(operands), self.libraries
        try:
            return native.call(_run, *given, seconds=_SECONDS)
        except native.NativeError as error:
            raise UserError(" ".join(str(error).split())) from None
        except native.NativeFailureError as error:
            raise UserError(f"ONNX Runtime {error}") from None


def _run(
    node: bytes,
    versions: dict[str, int],
    operands: Sequence[Array | None],
    libraries: tuple[str, ...],
) -> list[Array | None]:
    """Run a node, inside the child process."""
    from onnx import NodeProto

    return run_node(NodeProto.FromString(node), versions, operands, libraries)


def _runner(module: ir.Module, op: ir.Operation, libraries: tuple[str, ...]) -> _Runner:
    return _Runner(op, dict(onnx.opsets(module)), libraries)


def _prove(
    where: str, op: ir.Operation, info: OpInfo, rule: Rule, run: _Runner
) -> Iterator[list[str]]:
    name = onnx.node_name(op) or "-"
    try:
        proofs = prove(info, rule, run)
    except UserError as error:
        raise UserError(f"{where}node '{name}' ({info.name}) {error}") from None
    for proof in proofs:
        yield [name, str(proof.mesh), str(proof.strategies), f"{proof.difference:.3g}", info.name]
