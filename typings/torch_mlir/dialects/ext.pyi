from typing import Self

from torch_mlir import ir

Operand = ir.Value
Result = ir.OpResult

class Pure: ...

class Dialect:
    class Attribute(ir.Attribute):
        def __init_subclass__(cls, *, name: str | None = None) -> None: ...
        @classmethod
        def get(cls, *parameters: ir.Attribute, context: ir.Context | None = None) -> Self: ...

    class Operation(ir.OpView):
        # Operands and attributes are given as they are, and results by their types.
        def __init__(
            self,
            *,
            loc: ir.Location | None = None,
            ip: ir.InsertionPoint | None = None,
            **fields: ir.Value | ir.Attribute | ir.Type,
        ) -> None: ...
        def __init_subclass__(
            cls, *, name: str | None = None, traits: list[type] | None = None
        ) -> None: ...

    def __init_subclass__(cls, *, name: str | None = None) -> None: ...
    @classmethod
    def load(cls) -> None: ...
