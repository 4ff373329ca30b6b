"""Models of the sweeps: nine real CNNs, transformers, one of them dynamic, and small models.

The CNNs come with the onnx package, where all elements of a weight are equal, so that their outputs
would agree whatever a compiler did. :func:`randomise` gives them useful weights.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from graphs.small import SMALL
from onnx import numpy_helper

from tensoropt.runtime.support.files import file_mode

__all__ = [
    "CNNS",
    "DIMS",
    "NAMES",
    "TRANSFORMERS",
    "cnn_path",
    "provide",
    "randomise",
    "transformer_path",
]

CNNS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
TRANSFORMERS = ("bert_tiny", "gpt2_tiny", "llama_tiny", "llama_tiny_dynamic", "vit_tiny")
NAMES = (*CNNS, *TRANSFORMERS, *SMALL)
"""All models; the last are from ``graphs/small.py``."""

# ONNX Runtime's attention operator takes one new token at a time.
_STEP = {"batch": 4, "sequence": 1, "past": 12}
DIMS = {
    "llama_tiny_dynamic": {"batch": 4, "seq": 32},
    "decoder_small": {**_STEP, "sequence": 4},
    "decoder_standard": {**_STEP, "sequence": 4},
    "decoder_runtime": _STEP,
    "decoder_4_bits": _STEP,
    "decoder_packed": {**_STEP, "sequence": 4},
    "decoder_runtime_packed": _STEP,
    "decoder_4_bits_packed": _STEP,
}
"""Sizes of symbolic dimensions, so that they can be split."""

_TRANSFORMERS = Path(__file__).parent.parent / "test" / "models"


def cnn_path(name: str) -> Path:
    """Return the file of one of :data:`CNNS` in the installed onnx package."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return folder / f"light_{name}.onnx"


def transformer_path(name: str) -> Path:
    """Return the file of one of :data:`TRANSFORMERS` in this repository."""
    return _TRANSFORMERS / f"{name}.onnx"


def provide(name: str, folder: Path) -> Path:
    """Return the file of one of :data:`NAMES`, created in ``folder`` unless it exists elsewhere.

    Any other name is the path of a file.
    """
    if name not in NAMES:
        return Path(name)
    if name in TRANSFORMERS:
        return transformer_path(name)
    if name in SMALL:
        return SMALL[name].build(name).save(folder, seed=0)
    randomise(cnn_path(name), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def randomise(source: Path, target: Path, seed: int = 0) -> None:
    """Write ``source`` with every ConstantOfShape weight replaced by random numbers.

    Weights of rank 2 and more are normal with variance 2 / fan-in (He et al., 2015). Vectors are in
    [0.5, 1.5], as a variance must be positive. The last product is scaled so that the input of the
    softmax, which becomes an output too, is about 1: a saturated softmax would hide errors. The
    weights are written to one external data file next to ``target``.
    """
    model = onnx.load(source)
    _fill(model.graph, np.random.default_rng(seed))
    _expose_logits(model.graph)
    _save(model, target)
    _scale_last_product(model.graph, 1 / _deviation(target))
    _save(model, target)


def _save(model: onnx.ModelProto, target: Path) -> None:
    data = target.name + ".data"
    (target.parent / data).unlink(missing_ok=True)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save(copy, target, save_as_external_data=True, location=data)
    (target.parent / data).chmod(file_mode())  # onnx creates it readable by its owner only


def _fill(graph: onnx.GraphProto, rng: np.random.Generator) -> None:
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    made = [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in shapes]
    for node in made:
        array = _weights(rng, tuple(int(n) for n in shapes[node.input[0]]))
        graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for group in (graph.initializer, graph.input):
        for unused in [item for item in group if item.name not in used]:
            group.remove(unused)


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    fan_in = math.prod(shape[1:])
    return (rng.standard_normal(shape, dtype=np.float32) * math.sqrt(2 / fan_in)).astype(np.float32)


def _expose_logits(graph: onnx.GraphProto) -> None:
    last = graph.node[-1]
    if last.op_type == "Softmax":
        logits = onnx.ValueInfoProto()
        logits.CopyFrom(graph.output[0])
        logits.name = last.input[0]
        graph.output.append(logits)


def _deviation(path: Path) -> float:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (held,) = session.get_inputs()
    x = np.random.default_rng(0).standard_normal(held.shape).astype(np.float32)
    return float(session.run(None, {held.name: x})[-1].std())


def _scale_last_product(graph: onnx.GraphProto, factor: float) -> None:
    """Scale weight and bias of the last Conv or Gemm; only homogeneous ops follow it."""
    product = [node for node in graph.node if node.op_type in ("Conv", "Gemm")][-1]
    for tensor in graph.initializer:
        if tensor.name in product.input[1:]:
            scaled = numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(numpy_helper.from_array(scaled, tensor.name))
