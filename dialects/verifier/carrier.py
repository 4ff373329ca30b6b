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


@dataclass(frozen=True)
class Carrier:
    """An operation, or an argument or result of one, called ``subject``, as places of keys say."""

    op: ir.Operation
    place: str
    subject: str = ""

    def wrong(self, message: str) -> InvalidError:
        """Return the error that ``message``, which follows the subject, is about."""
        return InvalidError(self.op, f"{self.subject} {message}" if self.subject else message)
