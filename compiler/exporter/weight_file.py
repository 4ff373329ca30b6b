"""Streaming writer of the external data of an exported graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import onnx

from tensoropt.compiler.exporter.weights import Cut, ParameterSource, length
from tensoropt.compiler.protos.attributes import tensor_proto
from tensoropt.runtime.support.files import PAGE_BYTES

__all__ = ["INLINE_BYTES", "WeightFile"]

INLINE_BYTES = 1024


class WeightFile:
    """Writer of the parameters of a graph to ``path``, to which the graph refers as ``location``.

    The first tensor of :data:`INLINE_BYTES` or more creates the file. Smaller tensors, and strings,
    are stored in the graph.
    """

    def __init__(self, path: Path, location: str, source: ParameterSource) -> None:
        self.path = path
        self.location = location
        self._source = source
        self._file: BinaryIO | None = None

    def close(self) -> None:
        """Close the file, if it was created."""
        if self._file is not None:
            self._file.close()

    def add(self, name: str, cuts: Sequence[Cut] | None = None) -> onnx.TensorProto:
        """Store a parameter, or its part in ``cuts``; return the initializer.

        The part is filled with zeros beyond the size of the parameter.
        """
        element, shape = self._source.element(name), self._source.shape(name)
        if element.name == "STRING":
            return tensor_proto(self._source.read(name, cuts), name)
        dims = list(shape) if cuts is None else [*map(length, cuts)]
        tensor = onnx.TensorProto(name=name, data_type=element.number, dims=dims)
        count = 1
        for size in dims:
            count *= size
        if count * element.bits < INLINE_BYTES * 8:
            tensor.raw_data = b"".join(self._source.stream(name, cuts))
        else:
            self._external(tensor, self._source.stream(name, cuts))
        return tensor

    def _external(self, tensor: onnx.TensorProto, chunks: Iterable[bytes]) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("wb")
        file = self._file
        file.write(b"\0" * (-file.tell() % PAGE_BYTES))
        offset = file.tell()
        for chunk in chunks:
            file.write(chunk)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entries = (
            ("location", self.location),
            ("offset", str(offset)),
            ("length", str(file.tell() - offset)),
        )
        for key, value in entries:
            tensor.external_data.add(key=key, value=value)
