"""Every test of the frontend runs in an MLIR context of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensoropt.dialects.mlir import context, ir


@pytest.fixture(autouse=True)
def mlir_context() -> Iterator[ir.Context]:
    with context() as ctx:
        yield ctx
