"""Runs passes over a module: ours by name, and any other through MLIR's own pass manager."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TextIO

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import verifier
from tensoropt.dialects.mlir import PassManager, ir
from tensoropt.dialects.topt.keys import PASSED
from tensoropt.passes.base import Pass, PassError
from tensoropt.passes.diagnostics import Diagnostic
from tensoropt.passes.pipeline_text import Element, parse_elements, parse_options
from tensoropt.passes.registry import PASSES, create, unknown

__all__ = [
    "Pipeline",
    "UpstreamPass",
    "parse_pipeline",
    "passed",
    "print_timing",
    "raised_by_mlir",
    "set_passed",
    "verify",
]


@dataclass(frozen=True)
class UpstreamPass(Pass):
    """A piece of a pipeline that MLIR's own pass manager runs."""

    summary: ClassVar[str] = "a pass of MLIR"
    text: str

    @property
    def name(self) -> str:  # type: ignore[override]
        """The text as MLIR reads it."""
        return self.text

    def check(self, context: ir.Context) -> None:
        """Raise :class:`UserError` when MLIR does not know the pass or one of its options."""
        try:
            PassManager.parse(f"builtin.module({self.text})", context)
        except ValueError as error:
            raise self._refusal(str(error)) from None

    def run(self, module: ir.Module) -> None:
        """Run the pass; a failure carries MLIR's own diagnostic."""
        manager = PassManager.parse(f"builtin.module({self.text})", module.context)
        try:
            manager.run(module.operation)
        except ir.MLIRError as error:
            raise raised_by_mlir(error) from None

    def _refusal(self, reason: str) -> UserError:
        if "registered pass" in reason:
            name = reason.split("'")[1]
            return unknown(name)
        return UserError(f"pass '{self.text}': {reason.splitlines()[0]}")


@dataclass
class Pipeline:
    """Passes in order, and what to print while they run. Everything printed goes to ``stream``."""

    passes: Sequence[Pass]
    print_after_all: bool = False
    print_after: Sequence[str] = ()
    stream: TextIO | None = None
    seconds: list[tuple[str, float]] = field(default_factory=list)
    """The time of each pass that was run; pipelines in a row may add to one list."""
    say: Callable[[str], None] = lambda text: None
    """Is told what runs, as ``rules: add-rules, 1 of 2``, where ``phase`` is the text in front."""
    phase: str = "passes"

    def run(self, module: ir.Module) -> None:
        """Run every pass and verify the module after each.

        Raises :class:`PassError`, which names the failing pass and those before it.
        """
        for index, one in enumerate(self.passes):
            self._run_one(module, index, one)

    def _run_one(self, module: ir.Module, index: int, one: Pass) -> None:
        place = f", {index + 1} of {len(self.passes)}" if len(self.passes) > 1 else ""
        self.say(f"{self.phase}: {one.name}{place}")
        start = time.perf_counter()
        try:
            self._checked(module, one, _where(self.passes, index))
        finally:
            self.seconds.append((one.name, time.perf_counter() - start))
        if self.print_after_all or one.name in self.print_after:
            print(f"// -----// IR after {one.name} //----- //\n{module}", file=self._out())

    @staticmethod
    def _checked(module: ir.Module, one: Pass, where: str) -> None:
        """Run a pass, note the phase that it reaches, and verify what it left."""
        with module.context, ir.Location.unknown():
            _explained(lambda: one.run(module), where)
        if one.reaches is not None:
            set_passed(module, one.reaches)
        _explained(lambda: verify(module), f"{where}, which left an invalid module")

    def _out(self) -> TextIO:
        return self.stream or sys.stderr


def print_timing(seconds: Sequence[tuple[str, float]], stream: TextIO) -> None:
    """Print a table of the time of each pass."""
    total = sum(one for _, one in seconds)
    print("  seconds  share  pass", file=stream)
    for name, one in (*seconds, ("total", total)):
        share = one / total if total else 1.0
        print(f"{one:9.4f} {share:6.1%}  {name}", file=stream)


def parse_pipeline(text: str, context: ir.Context) -> list[Pass]:
    """Return the passes that ``text`` names; raises :class:`UserError` before anything is run."""
    passes: list[Pass] = []
    for element in parse_elements(text):
        one = _resolve(element)
        if isinstance(one, UpstreamPass):
            one.check(context)
        passes.append(one)
    return passes


def set_passed(module: ir.Module, phase: str) -> None:
    """Write into ``module`` which phase it has passed."""
    with module.context:
        PASSED.set(module.operation.attributes, phase)


def passed(module: ir.Module) -> str:
    """Return the phase that ``module`` has passed; text that says nothing is imported text."""
    return PASSED.get(module.operation.attributes) or "import"


def verify(module: ir.Module) -> None:
    """Raise :class:`PassError` with the first diagnostic when ``module`` is invalid.

    MLIR's own verifier comes first, then what `topt` says beyond it.
    """
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise raised_by_mlir(error) from None
    try:
        verifier.verify(module)
    except verifier.InvalidError as error:
        raise Pass.fail(error.op, error.message) from None


def raised_by_mlir(error: Any) -> PassError:
    """Return MLIR's exception as a :class:`PassError` at the location of its first diagnostic."""
    found = [one for info in error.error_diagnostics for one in Diagnostic.unpack(info)]
    if not found:
        return PassError(" ".join(str(error).split()))
    return PassError(found[0].message, found[0].location, tuple(found[1:]))


def _resolve(element: Element) -> Pass:
    if element.inner is None and element.name in PASSES:
        return create(element.name, parse_options(element.name, element.options))
    for nested in element.walk():
        if nested.name in PASSES:
            raise UserError(
                f"pass '{nested.name}' runs on the whole module, expected it outside of "
                f"'{element.name}(...)', got: '{element}'"
            )
    return UpstreamPass(str(element))


def _where(passes: Sequence[Pass], index: int) -> str:
    before = ", ".join(f"'{one.name}'" for one in passes[:index])
    return f"in pass '{passes[index].name}'" + (f" after {before}" if before else "")


def _explained(action: Callable[[], None], where: str) -> None:
    try:
        action()
    except PassError as error:
        raise PassError(f"{error.message} ({where})", error.location, error.attached) from error
    except verifier.InvalidError as error:
        own = Pass.fail(error.op, error.message)
        raise PassError(f"{own.message} ({where})", own.location) from own
    except UserError as error:
        raise PassError(f"{error} ({where})") from error
    except Exception as error:
        error.add_note(where)
        raise
