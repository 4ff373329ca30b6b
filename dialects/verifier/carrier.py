"""What carries `topt.*` attributes, and the error about one of them."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir

__all__ = ["Carrier", "InvalidError"]


class InvalidError(UserError):
    """What the IR says about ``op`` cannot be; ``message`` follows the name of the operation."""

    def __init__(self, op: ir.Operation, message: str) -> None:
        super().__init__(f"'{op.name}' op {message}")
        self.op, self.message = op, message


@dataclass(slots=True)
class Carrier:
    """An operation, or one of its arguments or results, by number; ``place`` is as keys have it."""

    op: ir.Operation
    place: str
    number: int | None = None

    @property
    def subject(self) -> str:
        """How messages call it after the name of the operation, empty for the operation itself."""
        return "" if self.number is None else f"{self.place.split()[-1]} {self.number}"

    def wrong(self, message: str) -> InvalidError:
        """Return the error that ``message``, which follows the subject, is about."""
        return InvalidError(self.op, f"{self.subject} {message}" if self.subject else message)
