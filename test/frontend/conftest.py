"""Every test of the frontend runs in an MLIR context of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensoropt.dialects.context import context
from tensoropt.dialects.mlir import ir


@pytest.fixture(autouse=True)
def mlir_context() -> Iterator[ir.Context]:
    with context() as ctx:
        yield ctx
