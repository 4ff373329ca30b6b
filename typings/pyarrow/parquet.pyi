from pathlib import Path

from pyarrow import Schema, Table

class RowGroupMetaData:
    num_rows: int

class FileMetaData:
    num_row_groups: int
    def row_group(self, group: int) -> RowGroupMetaData: ...

class ParquetFile:
    metadata: FileMetaData
    schema_arrow: Schema
    def __init__(self, path: Path) -> None: ...
    def read_row_group(self, group: int, *, columns: list[str], use_threads: bool) -> Table: ...
