"""Gradients of mixtures of experts."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects import onnx
from tensoropt.dialects.build import ints_attr, onnx_attr

__all__: list[str] = []

_LAYERS = range(2, 6)  # operands, of two layers with biases
_THIRD = range(6, 8)


@gradient("com.microsoft.MoE")
def mixture(b: Backward) -> Gradients:
    """Return the gradients of tokens, scores, weights and biases.

    The selection of experts is constant: scores have gradients through the weights of the selected
    experts alone. One operation computes all, because the tokens of an expert are known at run time
    only. It leaves out frozen weights.
    """
    _check(b)
    make, given = b.make, [b.operand(i) if b.has(i) else b.make.no_value() for i in range(6)]
    places = [0, 1, *(i for i in _LAYERS if b.has(i) and b.wanted[i])]
    attributes = {name: onnx_attr(value) for name, value in b.info.attributes}
    found = make.onnx_many(
        onnx.MIXTURE_GRADIENT,
        [*given, b.dy],
        [given[i].type for i in places],
        layers=ints_attr(places[2:]),
        **attributes,
    )
    gradients = dict(zip(places, found, strict=True))
    return [gradients.get(i) if wanted else None for i, wanted in enumerate(b.wanted)]


def _check(b: Backward) -> None:
    """Raise UserError for a form that has no gradient."""
    kind, fused = b.info.attribute("activation_type", "relu"), b.info.attribute("swiglu_fusion", 0)
    tensor = b.info.operand(0)
    if tensor is not None and tensor.dtype != "float32":
        raise b.unsupported(f"it is in {tensor.dtype}, expected float32")
    if b.info.attribute("use_sparse_mixer", 0):
        raise b.unsupported("it has a sparse mixer, expected a softmax")
    if any(map(b.has, _THIRD)):
        raise b.unsupported("it has a third layer, expected gates in the first (swiglu_fusion=1)")
    if fused != int(kind == "swiglu"):
        raise b.unsupported(f"it has {kind} with swiglu_fusion={fused}, expected swiglu with 1")
