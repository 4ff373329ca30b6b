"""One run of a model with its gradients, compared with what it ought to give; see harness.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from training.vjp import Array, Vjp

__all__ = ["STEPS", "Trial"]

TorchFunction = Callable[..., Any]

STEPS = {"float64": 1e-5, "float32": 5e-3}
"""The step of finite differences, by the type that the model computes in."""

DIFFERENCE_RTOL = {"float64": 1e-6, "float32": 1e-2}
TORCH_RTOL = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
_DIRECTIONS = 2


class Trial:
    """``vjp`` on ``feeds``, beside the outputs that the forward model gives."""

    def __init__(self, vjp: Vjp, feeds: dict[str, Array], expected: dict[str, Array], seed: int,
                 rtol: float | None) -> None:  # fmt: skip
        self.vjp, self.feeds, self.expected = vjp, feeds, expected
        self.rng = np.random.default_rng(seed)
        self.weights = {n: self._random(expected[n]) for n in vjp.weighted}
        self.run = vjp.run(feeds, self.weights)
        kinds = [feeds[n].dtype.name for n in vjp.gradients if n in feeds]
        kinds += [w.dtype.name for w in self.weights.values()]
        self.dtype = min(kinds, key=lambda name: {"float64": 3, "float32": 2}.get(name, 1))
        self.rtol = TORCH_RTOL[self.dtype] if rtol is None else rtol

    def _random(self, like: Array) -> Array:
        return np.asarray(self.rng.standard_normal(like.shape)).astype(like.dtype)

    @property
    def has_differences(self) -> bool:
        """Whether the type is wide enough for finite differences."""
        return self.dtype in STEPS

    def compare_forward(self) -> None:
        """Fail unless training computes what the model computes."""
        for name, whole in self.expected.items():
            _assert_close(self.run.outputs[name], whole, self.rtol, f"output {name}")

    def compare_differences(self) -> None:
        """Fail unless every gradient predicts the change along random directions."""
        step, rtol = STEPS[self.dtype], DIFFERENCE_RTOL[self.dtype]
        for name in self.vjp.gradients:
            if name not in self.feeds or not self.feeds[name].size:
                continue
            held = self.feeds[name].astype(np.float64)
            for _ in range(_DIRECTIONS):
                v = self.rng.uniform(0.5, 1, held.shape) * self.rng.choice([-1, 1], held.shape)
                change = (self._at(name, held + step * v) - self._at(name, held - step * v)) / (
                    2 * step
                )
                self._compare_change(name, v, change, rtol)

    def _compare_change(self, name: str, v: Array, change: float, rtol: float) -> None:
        gradient = self.run.gradients[name]
        products = np.zeros(1) if gradient is None else gradient.astype(np.float64) * v
        said, size = float(products.sum()), float(np.sqrt(np.square(products).sum()))
        assert abs(said - change) <= rtol * max(size, 1.0), (
            f"gradient of {name}: finite differences give {change}, the gradient {said}"
        )

    def _at(self, name: str, moved: Array) -> float:
        feeds = {**self.feeds, name: np.asarray(moved, self.feeds[name].dtype)}
        outputs = self.vjp.run(feeds, self.weights).outputs
        return sum(
            float((outputs[n].astype(np.float64) * w).sum()) for n, w in self.weights.items()
        )

    def compare_torch(self, function: TorchFunction, *, outputs: bool) -> None:
        """Fail unless the gradients, and the outputs if ``outputs``, are those of PyTorch."""
        import torch

        tensors = {n: _tensor(a, n in self.vjp.gradients) for n, a in self.feeds.items()}
        given = function(tensors)
        given = dict(
            zip(self.expected, given if isinstance(given, tuple) else [given], strict=False)
        )
        total = sum((given[n].double() * _tensor(w, False)).sum() for n, w in self.weights.items())
        names = [n for n in self.vjp.gradients if n in tensors]
        found = torch.autograd.grad(total, [tensors[n] for n in names], allow_unused=True)
        for name, own in zip(names, found, strict=True):
            self._compare_gradient(name, own)
        for name, value in given.items() if outputs else ():
            _assert_close(self.run.outputs[name], value.detach().numpy(), self.rtol, name)

    def _compare_gradient(self, name: str, found: Any) -> None:
        zeros = np.zeros_like(self.feeds[name], np.float64)
        own = self.run.gradients[name]
        _assert_close(
            zeros if own is None else own,
            zeros if found is None else found.numpy(),
            self.rtol,
            f"gradient of {name}",
        )


def _tensor(array: Array, differentiated: bool) -> Any:
    """Return a tensor of an array; floating point ones in float64, so that PyTorch is the truth."""
    import torch

    if array.dtype.kind in "fV" or array.dtype.name == "bfloat16":
        return torch.tensor(array.astype(np.float64), requires_grad=differentiated)
    return torch.tensor(array)


def _assert_close(got: Array, whole: Array, rtol: float, what: str) -> None:
    """Fail where two arrays differ by more than ``rtol`` of the value or of the largest (or 1)."""
    if whole.dtype.kind not in "fV" and whole.dtype.name != "bfloat16":
        np.testing.assert_array_equal(got, whole, err_msg=what)
        return
    got, whole = got.astype(np.float64), whole.astype(np.float64)
    largest = float(np.abs(whole[np.isfinite(whole)]).max(initial=1.0))
    np.testing.assert_allclose(got, whole, rtol=rtol, atol=rtol * largest, err_msg=what)
