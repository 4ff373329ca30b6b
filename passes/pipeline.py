"""Pipelines of passes: tensoropt's own by name, others through MLIR's pass manager."""

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
from tensoropt.passes.registry import PASSES, create, unknown_pass

__all__ = [
    "Pipeline",
    "UpstreamPass",
    "error_from_mlir",
    "parse_pipeline",
    "passed_phase",
    "print_timing",
    "set_passed_phase",
    "verify",
]


@dataclass(frozen=True)
class UpstreamPass(Pass):
    """A part of a pipeline that MLIR's pass manager runs."""

    summary: ClassVar[str] = "a pass of MLIR"
    text: str

    @property
    def name(self) -> str:  # type: ignore[override]
        """The text of the pipeline in MLIR's syntax."""
        return self.text

    def check(self, context: ir.Context) -> None:
        """Raise :class:`UserError` if MLIR has no such pass or option."""
        try:
            PassManager.parse(f"builtin.module({self.text})", context)
        except ValueError as error:
            reason = str(error)
            if "registered pass" in reason:
                raise unknown_pass(reason.split("'")[1]) from None
            raise UserError(f"pass '{self.text}': {reason.splitlines()[0]}") from None

    def run(self, module: ir.Module) -> None:
        """Run the pass; raises :class:`PassError` with MLIR's diagnostic."""
        manager = PassManager.parse(f"builtin.module({self.text})", module.context)
        try:
            manager.run(module.operation)
        except ir.MLIRError as error:
            raise error_from_mlir(error) from None


@dataclass
class Pipeline:
    """Passes in order, with options for printing to ``stream`` while they run."""

    passes: Sequence[Pass]
    print_after_all: bool = False
    print_after: Sequence[str] = ()
    stream: TextIO | None = None
    seconds: list[tuple[str, float]] = field(default_factory=list)
    """The time of each pass that was run; consecutive pipelines may share one list."""
    say: Callable[[str], None] = lambda text: None
    """Progress callback; receives ``rules: add-rules, 1 of 2``, with ``phase`` as the prefix."""
    phase: str = "passes"

    def run(self, module: ir.Module) -> None:
        """Run every pass and verify the module after each.

        Raises :class:`PassError`, which names the failing pass and the passes before it.
        """
        for index, current in enumerate(self.passes):
            place = f", {index + 1} of {len(self.passes)}" if len(self.passes) > 1 else ""
            self.say(f"{self.phase}: {current.name}{place}")
            before = ", ".join(f"'{earlier.name}'" for earlier in self.passes[:index])
            context = f"in pass '{current.name}'" + (f" after {before}" if before else "")
            start = time.perf_counter()
            try:
                self._run_and_verify(module, current, context)
            finally:
                self.seconds.append((current.name, time.perf_counter() - start))
            if self.print_after_all or current.name in self.print_after:
                text = f"// -----// IR after {current.name} //----- //\n{module}"
                print(text, file=self.stream or sys.stderr)

    @staticmethod
    def _run_and_verify(module: ir.Module, current: Pass, context: str) -> None:
        """Run a pass, record the phase that it reaches, and verify its result."""
        with module.context, ir.Location.unknown():
            _with_context(lambda: current.run(module), context)
        if current.reaches is not None:
            set_passed_phase(module, current.reaches)
        _with_context(lambda: verify(module), f"{context}, which left an invalid module")


def print_timing(seconds: Sequence[tuple[str, float]], stream: TextIO) -> None:
    """Print a table of the time of each pass."""
    total = sum(time_s for _, time_s in seconds)
    print("  seconds  share  pass", file=stream)
    for name, time_s in (*seconds, ("total", total)):
        share = time_s / total if total else 1.0
        print(f"{time_s:9.4f} {share:6.1%}  {name}", file=stream)


def parse_pipeline(text: str, context: ir.Context) -> list[Pass]:
    """Return the passes of the pipeline ``text``; raises :class:`UserError` if it is invalid."""
    passes: list[Pass] = []
    for element in parse_elements(text):
        resolved = _resolve(element)
        if isinstance(resolved, UpstreamPass):
            resolved.check(context)
        passes.append(resolved)
    return passes


def set_passed_phase(module: ir.Module, phase: str) -> None:
    """Record in ``module`` the last phase that it has passed."""
    with module.context:
        PASSED.set(module.operation.attributes, phase)


def passed_phase(module: ir.Module) -> str:
    """Return the last phase that ``module`` has passed, ``import`` if none is recorded."""
    return PASSED.get(module.operation.attributes) or "import"


def verify(module: ir.Module) -> None:
    """Raise :class:`PassError` with the first diagnostic if ``module`` is invalid.

    MLIR's verifier runs first, then the verifier of `topt`.
    """
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise error_from_mlir(error) from None
    try:
        verifier.verify(module)
    except verifier.InvalidError as error:
        raise Pass.fail(error.op, error.message) from None


def error_from_mlir(error: Any) -> PassError:
    """Return MLIR's exception as a :class:`PassError` at the location of its first diagnostic."""
    found = [part for info in error.error_diagnostics for part in Diagnostic.unpack(info)]
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


def _with_context(action: Callable[[], None], context: str) -> None:
    """Run ``action`` and append ``context`` to the message of its error."""
    try:
        action()
    except PassError as error:
        raise PassError(f"{error.message} ({context})", error.location, error.attached) from error
    except verifier.InvalidError as error:
        own = Pass.fail(error.op, error.message)
        raise PassError(f"{own.message} ({context})", own.location) from own
    except UserError as error:
        raise PassError(f"{error} ({context})") from error
    except Exception as error:
        error.add_note(context)
        raise
