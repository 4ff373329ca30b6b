from collections.abc import Sequence

from torch_mlir import ir

class FuncOp(ir.OpView):
    arg_attrs: ir.ArrayAttr
    result_attrs: ir.ArrayAttr
    def __init__(
        self,
        name: str,
        type: ir.FunctionType,
        *,
        visibility: str | None = None,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> None: ...
    @property
    def arguments(self) -> Sequence[ir.BlockArgument]: ...
    @property
    def entry_block(self) -> ir.Block: ...
    @property
    def type(self) -> ir.FunctionType: ...
    def add_entry_block(self, arg_locs: Sequence[ir.Location] | None = None) -> ir.Block: ...

class ReturnOp(ir.OpView):
    def __init__(
        self,
        operands_: Sequence[ir.Value],
        *,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> None: ...
