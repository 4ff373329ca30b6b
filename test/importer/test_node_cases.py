"""The standard's own test of each operator, through import, passes and export.

One case in sixteen; all of them where TENSOROPT_SWEEP is set.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from importer.models import run, saved, text

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.importer.importer import import_model
from tensoropt.compiler.protos.versions import MAX_IR_VERSION, MAX_OPSET
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.passes.dce import DcePass
from tensoropt.passes.fold_constants import FoldConstantsPass
from tensoropt.passes.simplify import SimplifyPass
from tensoropt.passes.verify_onnx import VerifyOnnxPass

pytestmark = pytest.mark.usefixtures("mlir_context")

STEP = 1 if "TENSOROPT_SWEEP" in os.environ else 16


def cases() -> list[Any]:
    """The cases of opsets that the runtime loads (others cannot be compared)."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases overflow on purpose while they are made
        found = collect_testcases(None)
    return [case for case in found if case.data_sets and is_loadable(case.model)]


def is_loadable(proto: onnx.ModelProto) -> bool:
    return all(o.version <= MAX_OPSET.get(o.domain, 0) for o in proto.opset_import)


def expected(path: Path, inputs: dict[str, Any]) -> list[Any] | None:
    """Return what ONNX Runtime computes, ``None`` where it has no kernel for it."""
    try:
        return run(path, inputs)
    except Exception:
        return None


def through_the_compiler(path: Path, out: Path) -> Path:
    module = import_model(path)
    printed = text(module)
    assert text(ir.Module.parse(printed)) == printed
    for step in (VerifyOnnxPass(), FoldConstantsPass(), SimplifyPass(), DcePass()):
        step.run(module)
        assert module.operation.verify()
    return export_model(module, out, ParameterSource(path))[0]


def check(case: Any, folder: Path) -> None:
    """Check one case; a model that the runtime refuses may be refused here too, by a message."""
    proto = case.model
    proto.ir_version = min(proto.ir_version, MAX_IR_VERSION)
    path = saved(proto, folder)
    names = [value.name for value in proto.graph.input]
    inputs = dict(zip(names, case.data_sets[0][0], strict=False))
    wanted = expected(path, inputs)
    try:
        made = through_the_compiler(path, folder / "out.onnx")
    except UserError as error:
        assert wanted is None, f"{case.name}: {error}"
        return
    if wanted is None:
        return
    # Folded constants of float16 are rounded where ONNX Runtime keeps float32 between nodes.
    for got, want in zip(run(made, inputs), wanted, strict=True):
        if isinstance(want, np.ndarray) and want.dtype == np.float16:
            np.testing.assert_allclose(got, want, rtol=2e-3)
        else:
            np.testing.assert_equal(got, want, err_msg=case.name)


@pytest.mark.filterwarnings("ignore")
def test_node_cases(tmp_path: Path) -> None:
    found = cases()
    assert len(found) > 1000
    for case in found[::STEP]:
        check(case, tmp_path)
