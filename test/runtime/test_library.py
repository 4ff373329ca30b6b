"""What the library of collectives answers outside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_ranks import under_mpi

from tensoropt.runtime.ops import library
from tensoropt.runtime.support.errors import UserError


@pytest.fixture(scope="module")
def found() -> dict:
    return under_mpi(2, Path(__file__).parent / "library_cases.py")


def test_where_a_rank_is(found: dict) -> None:
    assert found["before"] == "before its first collective"
    assert found["in"] == "in AllReduce node 'first' (collective 1)"
    assert found["after"] == "after AllReduce node 'second' (2 collectives done)"


def test_messages_count_as_progress(found: dict) -> None:
    assert found["waits"] == "waiting for other stages"
    assert found["moved"] == found["moves"] + 2


def test_nothing_ran_on_a_device(found: dict) -> None:
    assert found["peak"] == -1


def test_nothing_to_abort() -> None:
    library.abort()


def test_a_library_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "libtensoropt_ops.so"
    broken.write_bytes(b"no library")
    library._library.cache_clear()
    library._function.cache_clear()
    monkeypatch.setattr(library, "library_path", lambda: broken)
    with pytest.raises(UserError, match=r"libtensoropt_ops\.so: cannot be loaded: "):
        library.where()
