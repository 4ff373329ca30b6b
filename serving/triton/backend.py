"""A plan as a model of Triton's Python backend: the class that a repository's `model.py` uses.

Triton passes several requests to one call. Compatible requests share runs of the plan, as in our
own server. The plan's ranks are started once, when Triton loads the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import TensoroptError, one_line
from tensoropt.serving.batching.merging import merge, split_outputs
from tensoropt.serving.batching.pending import Pending
from tensoropt.serving.batching.sizes import Batching, batching_of
from tensoropt.serving.model import specs_of

__all__ = ["OPTIONS", "model_class"]

OPTIONS = "serving.json"
"""The file next to `model.py` with the session options."""


def model_class(triton: Any) -> type[Any]:
    """Return the class ``TritonPythonModel``; ``triton`` is ``triton_python_backend_utils``."""

    class TritonPythonModel:
        """Runs the plan in the folder of its version."""

        def initialize(self, args: Mapping[str, str]) -> None:
            """Start the ranks."""
            folder = Path(args["model_repository"]) / args["model_version"]
            self._plan = _Plan(folder, int(json.loads(args["model_config"])["max_batch_size"]))

        def execute(self, requests: Sequence[Any]) -> list[Any]:
            """Return a response to each request, in order."""
            inputs = [
                {name: self._input(request, name) for name in self._plan.inputs}
                for request in requests
            ]
            return [self._response(found) for found in self._plan.answers(inputs)]

        def finalize(self) -> None:
            """End the ranks."""
            self._plan.close()

        def _input(self, request: Any, name: str) -> Array:
            array: Array = triton.get_input_tensor_by_name(request, name).as_numpy()
            return _converted(array, bytes.decode) if array.dtype.hasobject else array

        def _response(self, found: Mapping[str, Array] | str) -> Any:
            if isinstance(found, str):
                return triton.InferenceResponse([], triton.TritonError(found))
            tensors = [
                triton.Tensor(
                    name, _converted(array, str.encode) if array.dtype.hasobject else array
                )
                for name, array in found.items()
            ]
            return triton.InferenceResponse(tensors)

    return TritonPythonModel


def _converted(texts: Array, convert: Callable[[Any], Any]) -> Array:
    """Convert each string: Triton's are bytes, a plan's are str."""
    array: Array = np.array([convert(text) for text in texts.ravel()], object)
    return array.reshape(texts.shape)


class _Plan:
    """A plan's session, and the batching of its requests."""

    def __init__(self, folder: Path, max_batch: int) -> None:
        options = json.loads((folder / OPTIONS).read_text(encoding="utf-8"))
        plan = Plan.load(folder / "plan")
        inputs = specs_of(plan.run_inputs, options["dims"])
        outputs = specs_of(plan.run_outputs, options["dims"])
        self.inputs = [spec.name for spec in inputs]
        self._batching: Batching | None = None
        if max_batch:
            self._batching = batching_of(inputs, outputs, max_batch)
        self._session = Session(folder / "plan", **options)
        self.close = self._session.close

    def answers(self, requests: Sequence[Mapping[str, Array]]) -> list[Mapping[str, Array] | str]:
        """Return the outputs for each request, or its error message."""
        answers: list[Mapping[str, Array] | str] = [""] * len(requests)
        for run in self._runs(requests):
            found = self._run([requests[index] for index in run])
            for index, answer in zip(run, found, strict=True):
                answers[index] = answer
        return answers

    def _runs(self, requests: Sequence[Mapping[str, Array]]) -> list[list[int]]:
        """Return the indices of the requests in each run."""
        if self._batching is None:
            return [[index] for index in range(len(requests))]
        pending = Pending[int](self._batching.size, 0.0)
        for index, request in enumerate(requests):
            samples = len(next(iter(request.values())))
            key = tuple((name, array.shape[1:]) for name, array in request.items())
            pending.add(index, key, samples, 0.0)
        runs = []
        while run := pending.take():
            runs.append(run)
        return runs

    def _run(self, requests: Sequence[Mapping[str, Array]]) -> Sequence[Mapping[str, Array] | str]:
        try:
            if not self._session.is_alive:
                self._session.restart()
            if self._batching is None:
                return [self._session.run(requests[0])]
            sizes = [len(next(iter(request.values()))) for request in requests]
            whole = merge(requests, self._batching.padded(sum(sizes)), self._session.empty)
            return list(split_outputs(self._session.run(whole), sizes))
        except TensoroptError as error:
            return [one_line(error)] * len(requests)
