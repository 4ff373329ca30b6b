"""Running passes: order, verification, and who is named when one fails."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.context import context
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import Pass, PassError
from tensoropt.passes.pipeline import Pipeline, parse_pipeline, print_timing
from tensoropt.passes.pipeline_text import parse_elements, parse_options

TEXT = 'func.func @f() {\n  "onnx.X"() : () -> () loc("node one")\n  return\n}'


@dataclass(frozen=True)
class NothingPass(Pass):
    """Does nothing. Refuses nothing."""

    name: ClassVar[str] = "nothing"
    summary: ClassVar[str] = "Do nothing at all."

    def run(self, module: Any) -> None:
        assert ir.Context.current is module.context


@dataclass(frozen=True)
class FailPass(Pass):
    """Fails in the way that ``how`` says."""

    name: ClassVar[str] = "fail"
    summary: ClassVar[str] = "Fail."

    how: str

    def run(self, module: Any) -> None:
        body = module.body.operations[0].regions[0].blocks[0]
        if self.how == "op":
            raise self.fail(body.operations[0], "is odd, expected it even, got: 3")
        if self.how == "user":
            raise UserError("no such thing")
        if self.how == "bug":
            raise ZeroDivisionError
        for op in reversed(list(body.operations)):
            op.operation.erase()


@pytest.fixture
def module() -> Any:
    with context():
        yield ir.Module.parse(TEXT)


def test_an_error_names_node_passes_and_reason(module: Any) -> None:
    with pytest.raises(PassError) as caught:
        Pipeline([NothingPass(), FailPass("op")]).run(module)
    assert str(caught.value) == (
        "node 'node one': 'onnx.X' op is odd, expected it even, got: 3 "
        "(in pass 'fail' after 'nothing')"
    )


def test_an_error_without_a_place(module: Any) -> None:
    with pytest.raises(PassError, match=r"^no such thing \(in pass 'fail'\)$"):
        Pipeline([FailPass("user")]).run(module)


def test_a_bug_is_passed_on_with_the_name_of_the_pass(module: Any) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        Pipeline([NothingPass(), FailPass("bug")]).run(module)
    assert caught.value.__notes__ == ["in pass 'fail' after 'nothing'"]


def test_the_module_is_verified_after_each_pass(module: Any) -> None:
    with pytest.raises(PassError, match=r"\(in pass 'fail', which left an invalid module\)$"):
        Pipeline([FailPass("invalid"), NothingPass()]).run(module)


def test_timing_is_printed_after_a_failure_too(module: Any) -> None:
    pipeline, stream = Pipeline([NothingPass(), FailPass("user")]), io.StringIO()
    with pytest.raises(PassError):
        pipeline.run(module)
    print_timing(pipeline.seconds, stream)
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == [
        "pass",
        "nothing",
        "fail",
        "total",
    ]


def test_elements_print_as_they_were_written() -> None:
    text = "a{x=1 y=2},func.func(b,c{z={n=1}}),d"
    assert ",".join(map(str, parse_elements(f" builtin.module( {text} ) "))) == text


def test_options() -> None:
    assert parse_options("p", """a=1 b="x y" c='z' flag""") == {
        "a": "1",
        "b": "x y",
        "c": "z",
        "flag": "true",
    }


def test_upstream_passes_stay_in_order() -> None:
    with context() as ctx:
        names = [one.name for one in parse_pipeline("cse,dce,func.func(canonicalize)", ctx)]
    assert names == ["cse", "dce", "func.func(canonicalize)"]
