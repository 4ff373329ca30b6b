"""A plan for training written by hand: least squares on ranks that share the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from handmade import collective, edit, model_of, sha256, tensor, value_info, write_plan
from onnx import helper
from safetensors.numpy import save_file

MOMENTUM = 0.9
FEATURES = 3


class LeastSquares:
    """mse(x w, t) with momentum: rows of x and t are split, w and its velocity are on every rank.

    ``losses`` computes what a run must give, in NumPy.
    """

    def __init__(self, folder: Path, batch: int = 4) -> None:
        random = np.random.default_rng(7)
        self.batch = batch
        self.w = random.standard_normal((FEATURES, 1), dtype=np.float32)
        self.model = folder / "least_squares.onnx"
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        ends = [value_info("x", "float32", [batch, FEATURES])], [self._rows("y", batch)]
        onnx.save(model_of([node], *ends, {"w": self.w}), self.model)

    def _rows(self, name: str, batch: int) -> Any:
        return value_info(name, "float32", [batch, 1])

    def plan(self, folder: Path, ranks: int = 2) -> Path:
        gradients = [self._gradients(ranks)] * ranks
        x = tensor("x", [self.batch, FEATURES], ["S(0)"])
        t = tensor("t", [self.batch, 1], ["S(0)"])
        loss = tensor("loss", [], ["R"])
        write_plan(folder, self.model, (ranks,), gradients, [x, t], [loss])
        (folder / "weights").mkdir()
        for rank in range(ranks):
            onnx.save(self._update(), folder / f"rank{rank}.update.onnx")
            save_file({"w": self.w}, folder / "weights" / f"rank{rank}.safetensors")
        return edit(folder, lambda content: self._describe(folder, content))

    def _gradients(self, ranks: int) -> onnx.ModelProto:
        rows = self.batch // ranks
        group = list(range(ranks))
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Sub", ["y", "t"], ["d"]),
            helper.make_node("Mul", ["d", "d"], ["d2"]),
            helper.make_node("ReduceSum", ["d2"], ["s"], keepdims=0),
            helper.make_node("Mul", ["s", "share"], ["part"]),
            collective("AllReduce", "part", "loss", 0, group=group, reduction="sum"),
            helper.make_node("Transpose", ["x"], ["xt"]),
            helper.make_node("MatMul", ["xt", "d"], ["g"]),
            helper.make_node("Mul", ["g", "twice"], ["g2"]),
            collective("AllReduce", "g2", "w.grad", 1, group=group, reduction="sum"),
        ]
        inputs = [value_info("x", "float32", [rows, FEATURES]), self._rows("t", rows), self._w("w")]
        outputs = [value_info("loss", "float32", []), self._w("w.grad")]
        share = np.float32(1 / self.batch)
        return model_of(nodes, inputs, outputs, {"share": share, "twice": 2 * share})

    def _w(self, name: str) -> Any:
        return value_info(name, "float32", [FEATURES, 1])

    def _update(self) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Mul", ["w.velocity", "momentum"], ["old"]),
            helper.make_node("Add", ["old", "w.grad"], ["w.velocity.new"]),
            helper.make_node("Mul", ["w.velocity.new", "learning_rate"], ["change"]),
            helper.make_node("Sub", ["w", "change"], ["w.new"]),
        ]
        names = ("w", "w.velocity", "w.grad")
        inputs = [*map(self._w, names), value_info("learning_rate", "float32", [])]
        outputs = [self._w("w.new"), self._w("w.velocity.new")]
        return model_of(nodes, inputs, outputs, {"momentum": np.float32(MOMENTUM)})

    def _describe(self, folder: Path, content: dict[str, Any]) -> None:
        whole = tensor("w", [FEATURES, 1], ["R"])
        both = ["gradients", "update"]
        w = {"kind": "parameter", "of": None, "result": "w.new", "graph": "update", "read_by": both}
        velocity = {**w, "kind": "velocity", "of": "w", "result": "w.velocity.new"}
        rate = {"name": "learning_rate", "role": "learning_rate"}
        content["training"] = {
            "loss": {"kind": "mse", "output": "y", "labels": "t"},
            "optimizer": {
                "name": "momentum",
                "momentum": MOMENTUM,
                "beta1": 0.9,
                "beta2": 0.999,
                "epsilon": 1e-8,
                "weight_decay": 0.0,
            },
            "micro_batches": 1,
            "clip_norm": None,
            "precision": "float32",
            "recompute": "none",
            "start": "weights",
            "hyper": [{**rate, "dtype": "float32", "graphs": ["update"]}],
            "state": [
                {**w, **whole},
                {**velocity, **whole, "name": "w.velocity", "read_by": ["update"]},
            ],
            "gradients": [{**whole, "name": "w.grad", "of": "w", "accumulator": None}],
            "loss_output": "loss",
        }
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        listed = {path.relative_to(folder).as_posix(): sha256(path) for path in paths}
        del listed["plan.json"]
        content["files"] = listed

    def losses(self, batches: list[tuple[np.ndarray, np.ndarray]], rate: float) -> list[float]:
        """Return the loss of each step, from w on."""
        w, velocity, found = self.w.astype(np.float64), 0.0, []
        for x, t in batches:
            d = x @ w - t
            found.append(float(np.mean(d**2)))
            velocity = MOMENTUM * velocity + 2 * x.T @ d / self.batch
            w = w - rate * velocity
        return found
