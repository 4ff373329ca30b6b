from pyarrow import MemoryMappedFile, RecordBatch, Schema

class IpcReadOptions:
    def __init__(self, *, included_fields: list[int], use_threads: bool) -> None: ...

class RecordBatchFileReader:
    schema: Schema
    num_record_batches: int
    def get_batch(self, number: int) -> RecordBatch: ...

def open_file(
    source: MemoryMappedFile, *, options: IpcReadOptions | None = None
) -> RecordBatchFileReader: ...
