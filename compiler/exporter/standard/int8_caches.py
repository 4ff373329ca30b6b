"""Decoders with caches of 8-bit integers: scales measured on a text, and the effect on its scores.

`GroupQueryAttention` stores keys and values as integers, with one scale per channel of a head. The
operator multiplies them by the scales when it reads them, so no other node changes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.exporter.plan.decoder_files import head_size, text_entry
from tensoropt.compiler.exporter.standard.cache_effect import Effect, record_effect
from tensoropt.compiler.exporter.standard.target import check_target
from tensoropt.compiler.shapes.caches import End, pair
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.files import replacing
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import cause_of
from tensoropt.runtime.text.decoder import IDS, MASK, POSITIONS
from tensoropt.runtime.text.tokens import FILE, Vocabulary

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["read_sample", "write_int8_caches"]

_ATTENTION, _DOMAIN = "GroupQueryAttention", "com.microsoft"
_PASTS, _SCALES = (3, 4), (12, 13)
"""Operands of the operator: caches of keys and values, and their scales."""
_ANGLES = {_ATTENTION: 7, "RotaryEmbedding": 2}
"""The operand with the cosines of all positions."""
_LARGEST = 127
_FEWEST_TOKENS, _MOST_TOKENS = 16, 2048


def read_sample(path: Path, model: Path) -> list[int]:
    """Return the first tokens of a text, or of a ``.json`` list of tokens, at most 2,048.

    The tokenizer is next to the ``model``. Raises :class:`UserError` for fewer than 16 tokens.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--sample {path}: {cause_of(error)}") from None
    if path.suffix != ".json":
        tokens = Vocabulary(model.parent / FILE).tokens(text)
    else:
        try:
            tokens = json.loads(text)
        except ValueError as error:
            raise UserError(f"--sample {path}: expected JSON, got: {error}") from None
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise UserError(f"--sample {path}: expected a list of whole numbers")
    if len(tokens) < _FEWEST_TOKENS:
        raise UserError(
            f"--sample {path}: expected at least {_FEWEST_TOKENS} tokens, got: {len(tokens)}"
        )
    return tokens[:_MOST_TOKENS]


def write_int8_caches(model: Path, target: Path, tokens: Sequence[int]) -> Effect:
    """Write ``model`` with 8-bit caches next to it, and return the effect on a text.

    The new model records the effect, see `read_effect`. Scales come from the first half of the
    tokens, the effect from the second; tokens beyond the model's context are left out. ONNX Runtime
    runs both models on the text, in a process of its own. Raises :class:`UserError` for a model
    without `GroupQueryAttention` on all of its caches, and for another folder if the weights are in
    files next to the model.
    """
    proto = onnx.load(model, load_external_data=False)
    _check(proto, model, target)
    tokens = tokens[: _context(proto, model)]
    with replacing(target) as path, ProcessPoolExecutor(1, get_context("spawn")) as process:
        try:
            return process.submit(_convert, str(model), str(path), list(tokens)).result()
        except BrokenProcessPool:
            raise UserError(f"{model}: ONNX Runtime ended while it ran the model") from None


def _check(proto: onnx.ModelProto, model: Path, target: Path) -> None:
    where = f"--int8-caches {target}"
    check_target(proto, model, target, "--int8-caches")
    caches = {past.name for past, _ in _caches(proto)}
    read = {node.input[at] for node in _attentions(proto) for at in _PASTS if at < len(node.input)}
    if not caches or caches != read:
        odd = sorted(caches ^ read)
        got = f"'{odd[0]}'" if odd else "no caches"
        raise UserError(
            f"{where}: 8-bit caches are read by {_ATTENTION} alone, expected a decoder as "
            f"onnxruntime-genai's builder writes it, got: {got}"
        )
    if any(len(node.input) > _SCALES[0] and node.input[_SCALES[0]] for node in _attentions(proto)):
        raise UserError(f"{where}: expected a model with floating-point caches, got: scales")


def _context(proto: onnx.ModelProto, model: Path) -> int | None:
    """Return the number of tokens that the model reads at most, None if it is not known."""
    rows = {tensor.name: tensor.dims[0] for tensor in proto.graph.initializer if tensor.dims}
    angles = [
        node.input[_ANGLES[node.op_type]]
        for node in proto.graph.node
        if node.domain == _DOMAIN and len(node.input) > _ANGLES.get(node.op_type, len(node.input))
    ]
    known = [text_entry(model)["context"], *(rows.get(name) for name in angles)]
    return min((count for count in known if count is not None), default=None)


def _attentions(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    nodes = proto.graph.node
    return [node for node in nodes if (node.domain, node.op_type) == (_DOMAIN, _ATTENTION)]


def _caches(proto: onnx.ModelProto) -> list[tuple[onnx.ValueInfoProto, onnx.ValueInfoProto]]:
    """Return the inputs and outputs that are caches."""
    ends = {info.name: info for info in (*proto.graph.input, *proto.graph.output)}
    inputs, outputs = ([*map(_end, side)] for side in (proto.graph.input, proto.graph.output))
    return [(ends[cache.past], ends[cache.present]) for cache in pair(inputs, outputs)[0]]


def _end(info: onnx.ValueInfoProto) -> End:
    dims = info.type.tensor_type.shape.dim
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
    return End(info.name, str(info.type.tensor_type.elem_type), shape)


def _convert(model: str, target: str, tokens: Sequence[int]) -> Effect:
    """Write the model with 8-bit caches, and compare both; for the process of ONNX Runtime."""
    proto = onnx.load(model, load_external_data=False)
    before, presents = _run(model, tokens)
    half = len(tokens) // 2
    scales = {name: _scale(array[:, :, :half]) for name, array in presents.items()}
    _quantise(proto, scales)
    onnx.save(proto, target)
    after, _ = _run(target, tokens)
    effect = _effect(before[half:], after[half:], tokens[half:], len(scales))
    record_effect(proto, effect)
    onnx.save(proto, target)
    return effect


def _run(path: str, tokens: Sequence[int]) -> tuple[Array, dict[str, Array]]:
    """Return the scores of all tokens in 64 bits, and the new caches by the name of the old."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no other common type
        raise UserError(f"{path}: ONNX Runtime: {cause_of(error)}") from None
    proto = onnx.load(path, load_external_data=False)
    caches = {present.name: past.name for past, present in _caches(proto)}
    fed = {own.name: _fed(own, tokens, Path(path)) for own in session.get_inputs()}
    names = [own.name for own in session.get_outputs()]
    try:
        found = dict(zip(names, session.run(names, fed), strict=True))
    except Exception as error:
        raise UserError(f"--sample: ONNX Runtime: {cause_of(error)}") from None
    (scores,) = (found[name] for name in names if name not in caches)
    if scores.shape[1] != len(tokens):
        raise UserError(f"{path}: expected scores of all tokens, got: {scores.shape[1]}")
    return scores[0].astype(np.float64), {caches[name]: found[name] for name in caches}


def _fed(own: onnxruntime.NodeArg, tokens: Sequence[int], model: Path) -> Array:
    if own.name in (IDS, MASK, POSITIONS):
        given: dict[str, Any] = {
            IDS: tokens, MASK: np.ones(len(tokens)), POSITIONS: np.arange(len(tokens)),
        }  # fmt: skip
        dtype = np.int32 if "int32" in own.type else np.int64
        return np.asarray(given[own.name], dtype)[None]
    if len(own.shape) != 4:
        raise UserError(f"{model}: input '{own.name}': expected a decoder without this input")
    _, heads, _, size = own.shape
    size = size if isinstance(size, int) else (head_size(model) or ("", 0))[1]
    if not isinstance(heads, int) or not size:
        raise UserError(f"{model}: input '{own.name}': expected known heads, got: {own.shape}")
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int8)": np.int8}
    if own.type not in kinds:
        raise UserError(
            f"{model}: input '{own.name}': expected {', '.join(kinds)}, got: {own.type}"
        )
    return np.zeros((1, heads, 0, size), kinds[own.type])


def _scale(cache: Array) -> Array:
    """Return the scale of each channel of a cache `1 h s d`: the largest element becomes 127."""
    largest = np.abs(cache.astype(np.float32)).max(axis=2, keepdims=True)
    scale: Array = np.maximum(largest, np.finfo(np.float32).tiny * _LARGEST) / np.float32(_LARGEST)
    return scale


def _quantise(proto: onnx.ModelProto, scales: Mapping[str, Array]) -> None:
    """Make the caches of a model 8-bit integers with these scales."""
    for past, present in _caches(proto):
        for end in (past, present):
            end.type.tensor_type.elem_type = TensorProto.INT8
    infos = [info for info in proto.graph.value_info if info.name not in scales]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(infos)
    for node in _attentions(proto):
        node.input.extend([""] * (_SCALES[-1] + 1 - len(node.input)))
        for at, scale in zip(_PASTS, _SCALES, strict=True):
            name = f"{node.input[at]}.scale"
            proto.graph.initializer.append(numpy_helper.from_array(scales[node.input[at]], name))
            node.input[scale] = name
        own = {
            "k_quant_type": "PER_CHANNEL",
            "v_quant_type": "PER_CHANNEL",
            "kv_cache_bit_width": 8,
        }
        node.attribute.extend(helper.make_attribute(key, value) for key, value in own.items())


def _effect(before: Array, after: Array, tokens: Sequence[int], caches: int) -> Effect:
    """Compare the scores `s v` of ``tokens``."""
    old, new = (_log_probabilities(scores) for scores in (before, after))
    divergence = (np.exp(old) * (old - new)).sum(axis=-1).mean()
    same = (old.argmax(axis=-1) == new.argmax(axis=-1)).mean()
    at = np.arange(len(tokens) - 1), np.asarray(tokens[1:])
    perplexities = [math.exp(-own[at].mean()) for own in (old, new)]
    return Effect(len(old), caches, float(same), float(divergence), *perplexities)


def _log_probabilities(scores: Array) -> Array:
    shifted: Array = scores - scores.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted
