"""What is used of pyarrow, whose wheel has no types."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pyarrow import types as types

class ArrowException(Exception): ...  # noqa: N818
class MemoryMappedFile: ...

class DataType:
    def to_pandas_dtype(self) -> type[np.generic]: ...

class ListType(DataType):
    value_type: DataType

class LargeListType(DataType):
    value_type: DataType

class FixedSizeListType(DataType):
    value_type: DataType
    list_size: int

class BaseExtensionType(DataType):
    storage_type: DataType

class FixedShapeTensorType(BaseExtensionType):
    permutation: Sequence[int] | None

class Field:
    type: DataType

class Schema:
    names: list[str]
    def field(self, place: int) -> Field: ...
    def get_all_field_indices(self, name: str) -> list[int]: ...

class Array:
    null_count: int
    def __len__(self) -> int: ...
    def is_null(self) -> Array: ...
    def to_numpy(self, *, zero_copy_only: bool = True) -> npt.NDArray[Any]: ...

class ListArray(Array):
    offsets: Array
    def flatten(self) -> Array: ...

class LargeListArray(Array):
    offsets: Array
    def flatten(self) -> Array: ...

class FixedSizeListArray(Array):
    def flatten(self) -> Array: ...

class ExtensionArray(Array):
    storage: Array

class ChunkedArray:
    chunks: list[Array]
    def __len__(self) -> int: ...

class RecordBatch:
    def column(self, place: int) -> Array: ...

class Table:
    def column(self, name: str) -> ChunkedArray: ...

def chunked_array(arrays: Sequence[Array]) -> ChunkedArray: ...
def memory_map(path: str) -> MemoryMappedFile: ...
