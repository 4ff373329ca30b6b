"""The base class of passes: frozen dataclasses with their options as fields."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.diagnostics import Diagnostic, describe

if TYPE_CHECKING:
    from tensoropt.dialects.mlir import ir

__all__ = ["Pass", "PassError", "option_fields"]


class PassError(UserError):
    """An error in the program, found by a pass or the verifier at an operation.

    ``message`` is the text without the location, ``location`` the MLIR location (or ``None``). The
    text of the exception starts with the description of that location. ``attached`` are the notes
    and further diagnostics of the error.
    """

    def __init__(
        self, message: str, location: Any = None, attached: tuple[Diagnostic, ...] = ()
    ) -> None:
        where = describe(location)
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.location = location
        self.attached = attached


class Pass(ABC):
    """A change to a module. Subclasses are frozen dataclasses; their fields are the options.

    The file, the pass, the class and the test share one stem: ``passes/insert_reshards.py``,
    ``insert-reshards``, ``InsertReshardsPass``, ``test/passes/insert_reshards.mlir``. The class
    docstring is the reference text (`docs/passes.md`): the effect of the pass and the programs that
    it refuses. Options are ``bool``, ``int``, ``float`` or ``str``, each possibly ``| None``; field
    ``time_limit_s`` is written ``time-limit-s=10`` in a pipeline. A field with ``option: False`` in
    its metadata is not an option: the program that runs the pass sets it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    reaches: ClassVar[str | None] = None
    """The phase that the module has passed after this pass, or ``None``."""

    @abstractmethod
    def run(self, module: ir.Module) -> None:
        """Change ``module`` in place; raise :class:`PassError` if it is refused."""

    @staticmethod
    def fail(op: Any, message: str) -> PassError:
        """Return the error to raise about ``op``: ``raise self.fail(op, "expected X, got: Y")``."""
        operation = op.operation
        return PassError(f"'{operation.name}' op {message}", operation.location)


def option_fields(cls: type[Pass]) -> dict[str, dataclasses.Field[Any]]:
    """Return the options of a pass class by their names in a pipeline."""
    fields: tuple[dataclasses.Field[Any], ...] = ()
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
    return {f.name.replace("_", "-"): f for f in fields if f.metadata.get("option", True)}
