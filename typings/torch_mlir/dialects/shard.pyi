from torch_mlir import ir

class AllGatherOp(ir.OpView):
    def __init__(
        self,
        result: ir.Type,
        grid: str,
        input: ir.Value,
        gather_axis: int,
        *,
        grid_axes: ir.DenseI16ArrayAttr | None = None,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> None: ...

class AllReduceOp(ir.OpView):
    def __init__(
        self,
        result: ir.Type,
        grid: str,
        input: ir.Value,
        *,
        grid_axes: ir.DenseI16ArrayAttr | None = None,
        reduction: ir.Attribute | None = None,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> None: ...

class AllSliceOp(ir.OpView):
    def __init__(
        self,
        result: ir.Type,
        grid: str,
        input: ir.Value,
        slice_axis: int,
        *,
        grid_axes: ir.DenseI16ArrayAttr | None = None,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> None: ...

class AllToAllOp(ir.OpView):
    def __init__(
        self,
        result: ir.Type,
        grid: str,
        input: ir.Value,
        split_axis: int,
        concat_axis: int,
        *,
        grid_axes: ir.DenseI16ArrayAttr | None = None,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> None: ...

class ReduceScatterOp(ir.OpView):
    def __init__(
        self,
        result: ir.Type,
        grid: str,
        input: ir.Value,
        scatter_dim: int,
        *,
        grid_axes: ir.DenseI16ArrayAttr | None = None,
        reduction: ir.Attribute | None = None,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> None: ...

class GridOp(ir.OpView):
    def __init__(
        self,
        sym_name: str,
        shape: list[int],
        *,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
    ) -> None: ...
