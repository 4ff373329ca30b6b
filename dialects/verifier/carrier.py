"""Carriers of `topt.*` attributes, and the error about an invalid attribute."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir

__all__ = ["Carrier", "InvalidError"]


class InvalidError(UserError):
    """Invalid IR at ``op``; ``message`` follows the name of the operation."""

    def __init__(self, op: ir.Operation, message: str) -> None:
        super().__init__(f"'{op.name}' op {message}")
        self.op, self.message = op, message


@dataclass(slots=True)
class Carrier:
    """An operation, or its argument or result ``number``; ``place`` is a place of `keys`."""

    op: ir.Operation
    place: str
    number: int | None = None

    @property
    def subject(self) -> str:
        """Name in messages, after the operation's name; empty for the operation itself."""
        return "" if self.number is None else f"{self.place.split()[-1]} {self.number}"

    def wrong(self, message: str) -> InvalidError:
        """Return the error with ``message`` after the subject."""
        return InvalidError(self.op, f"{self.subject} {message}" if self.subject else message)
