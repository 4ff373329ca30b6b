"""Import then export: ONNX Runtime computes the same, the same bytes come out, and it is quick."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from importer.models import LIGHT, MODELS, feeds, run, text

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.importer.importer import import_model
from tensoropt.dialects.mlir import ir
from tensoropt.passes.dce import DcePass
from tensoropt.passes.fold_constants import FoldConstantsPass
from tensoropt.passes.simplify import SimplifyPass
from tensoropt.passes.verify_onnx import VerifyOnnxPass

pytestmark = pytest.mark.usefixtures("mlir_context")

CNNS = sorted(path.name for path in LIGHT.glob("*.onnx"))
TINY = sorted(path.name for path in MODELS.glob("*_tiny*.onnx"))
SLOW = {"light_vgg19.onnx"}
SIZES = {"batch": 3, "seq": 7}


def path_of(name: str) -> Path:
    return (LIGHT if name.startswith("light_") else MODELS) / name


def test_there_are_nine_cnns_and_five_transformers() -> None:
    assert (len(CNNS), len(TINY)) == (9, 5)


@pytest.mark.parametrize("name", [*TINY, *CNNS])
def test_the_exported_model_computes_the_same(name: str, tmp_path: Path) -> None:
    if name in SLOW and "TENSOROPT_SWEEP" not in os.environ:
        pytest.skip("slow: set TENSOROPT_SWEEP to run it")
    module = import_model(path_of(name))
    prepare(module)
    files = export_model(module, tmp_path / "out.onnx", ParameterSource(path_of(name)))
    onnx.checker.check_model(files[0], full_check=True)
    inputs = feeds(path_of(name), sizes=SIZES)
    for expected, got in zip(run(path_of(name), inputs), run(files[0], inputs), strict=True):
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["gpt2_tiny.onnx", "light_squeezenet.onnx"])
def test_without_passes_the_outputs_are_bit_for_bit_the_same(name: str, tmp_path: Path) -> None:
    files = export_model(
        import_model(path_of(name)), tmp_path / "out.onnx", ParameterSource(path_of(name))
    )
    inputs = feeds(path_of(name))
    for expected, got in zip(run(path_of(name), inputs), run(files[0], inputs), strict=True):
        assert np.array_equal(got, expected)


def prepare(module: ir.Module) -> None:
    for step in (VerifyOnnxPass(), FoldConstantsPass(), SimplifyPass(), DcePass()):
        step.run(module)
        assert module.operation.verify()


@pytest.mark.parametrize("name", [*TINY, *CNNS])
def test_printed_text_reads_back_to_the_same_text(name: str) -> None:
    module = import_model(path_of(name))
    printed = text(module)
    assert text(ir.Module.parse(printed)) == printed


@pytest.mark.parametrize("name", ["llama_tiny.onnx", "light_resnet50.onnx"])
def test_export_gives_the_same_bytes_each_time(name: str, tmp_path: Path) -> None:
    source = ParameterSource(path_of(name))
    module = import_model(path_of(name))
    first = [path.read_bytes() for path in export_model(module, tmp_path / "out.onnx", source)]
    again = import_model(path_of(name))
    second = [path.read_bytes() for path in export_model(again, tmp_path / "out.onnx", source)]
    assert first == second


def test_reading_the_printed_module_exports_the_same_bytes(tmp_path: Path) -> None:
    source = ParameterSource(path_of("bert_tiny.onnx"))
    module = import_model(path_of("bert_tiny.onnx"))
    first = [path.read_bytes() for path in export_model(module, tmp_path / "out.onnx", source)]
    parsed = ir.Module.parse(text(module))
    assert [p.read_bytes() for p in export_model(parsed, tmp_path / "out.onnx", source)] == first


def test_an_exported_model_imports_again(tmp_path: Path) -> None:
    source = ParameterSource(path_of("llama_tiny.onnx"))
    module = import_model(path_of("llama_tiny.onnx"))
    files = export_model(module, tmp_path / "llama_tiny.onnx", source)
    assert text(import_model(files[0])) == text(module)


def test_bound_dimensions_make_the_dynamic_model_static() -> None:
    module = import_model(path_of("llama_tiny_dynamic.onnx"), dims={"batch": 4, "seq": 32})
    prepare(module)
    printed = str(module)
    assert "?" not in printed
    assert "onnx.Shape" not in printed
    assert "onnx.Range" not in printed


def test_unbound_dimensions_stay_dynamic_and_named() -> None:
    module = import_model(path_of("llama_tiny_dynamic.onnx"))
    prepare(module)
    printed = str(module)
    assert 'tensor<?x?xi64> {topt.dims = ["batch", "seq"], topt.name = "x"}' in printed
    assert 'topt.dims = ["batch", "seq", ""], topt.name = "linear_14"' in printed


@pytest.mark.parametrize(
    ("name", "limit_s"), [("light_densenet121.onnx", 1.5), ("light_resnet50.onnx", 0.6)]
)
def test_import_and_folding_are_quick(name: str, limit_s: float) -> None:
    start_s = time.process_time()
    FoldConstantsPass().run(import_model(path_of(name)))
    assert time.process_time() - start_s < limit_s
