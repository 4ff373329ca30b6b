"""Training plans of a classifier written by hand: shared batch, sharded state, micro-batches.

Its steps in NumPy are the oracle. With ``kind`` "data" every rank holds all state; with "zero" a
rank holds rows of every tensor, gathers the parameters and scatters the gradients.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from handmade import collective, edit, model_of, sha256, tensor, value_info, write_plan
from onnx import helper
from safetensors.numpy import save_file

FEATURES, HIDDEN, CLASSES = 6, 8, 4
BETA1, BETA2, EPSILON, DECAY = 0.9, 0.999, 1e-8, 0.9


class Classifier:
    """relu(x w1 + b) w2, softmax cross-entropy with ``labels``, Adam; a running mean of x.

    The first graph takes ``batch`` samples; its ``loss_scale``, if asked for, multiplies gradients
    in float16 before they are handed on.
    """

    def __init__(self, folder: Path, batch: int = 4) -> None:
        random = np.random.default_rng(3)
        self.batch, self.model = batch, folder / "classifier.onnx"
        self.weights = {
            "b": random.standard_normal(HIDDEN, dtype=np.float32),
            "w1": random.standard_normal((FEATURES, HIDDEN), dtype=np.float32),
            "w2": random.standard_normal((HIDDEN, CLASSES), dtype=np.float32),
        }
        self.buffers = {"x.mean": np.zeros(FEATURES, np.float32)}
        nodes = [
            helper.make_node("Sub", ["x", "x.mean"], ["c"]),
            helper.make_node("MatMul", ["c", "w1"], ["z"]),
            helper.make_node("Add", ["z", "b"], ["zb"]),
            helper.make_node("Relu", ["zb"], ["h"]),
            helper.make_node("MatMul", ["h", "w2"], ["scores"]),
        ]
        ends = [_floats("x", batch, FEATURES)], [_floats("scores", batch, CLASSES)]
        onnx.save(model_of(nodes, *ends, {**self.weights, **self.buffers}), self.model)

    def data(self, samples: int, seed: int = 0) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        x = random.standard_normal((samples, FEATURES), dtype=np.float32)
        return {"x": x, "labels": random.integers(0, CLASSES, samples)}

    def plan(
        self, folder: Path, ranks: int = 2, kind: str = "data", micro: int = 1, half: bool = False
    ) -> Path:
        made = _Plan(self, ranks, kind == "zero", micro, half)
        layout = ["S(0)"]
        x = tensor("x", [self.batch, FEATURES], layout)
        labels = tensor("labels", [self.batch], layout, "int64")
        loss = tensor("loss", [], ["R"])
        graphs = [made.gradients()] * ranks
        write_plan(folder, self.model, (ranks,), graphs, [x, labels], [loss])
        (folder / "weights").mkdir()
        for rank in range(ranks):
            onnx.save(made.update(), folder / f"rank{rank}.update.onnx")
            held = {**self.weights, **self.buffers}
            parts = {name: made.part(name, array, rank) for name, array in held.items()}
            save_file(parts, folder / "weights" / f"rank{rank}.safetensors")
        return edit(folder, lambda content: made.describe(folder, content))

    def steps(self, data: dict[str, np.ndarray], steps: int, rate, micro: int = 1) -> Any:
        """Return losses and the state after ``steps`` steps, in float64; ``rate`` by step."""
        w = {name: array.astype(np.float64) for name, array in self.weights.items()}
        mean = {name: np.zeros_like(array) for name, array in w.items()}
        variance = {name: np.zeros_like(array) for name, array in w.items()}
        running, losses, position = np.zeros(FEATURES), [], 0
        for step in range(1, steps + 1):
            total = {name: np.zeros_like(array) for name, array in w.items()}
            found = []
            for _ in range(micro):
                rows = np.arange(position, position + self.batch) % len(data["x"])
                position += self.batch
                x, labels = data["x"][rows].astype(np.float64), data["labels"][rows]
                loss, gradients = _loss_and_gradients(w, x, labels)
                found.append(loss)
                running = DECAY * running + (1 - DECAY) * x.mean(0)
                for name in w:
                    total[name] += gradients[name] / micro
            losses.append(float(np.mean(found)))
            for name, g in total.items():
                mean[name] = BETA1 * mean[name] + (1 - BETA1) * g
                variance[name] = BETA2 * variance[name] + (1 - BETA2) * g * g
                m, v = mean[name] / (1 - BETA1**step), variance[name] / (1 - BETA2**step)
                w[name] = w[name] - rate(step) * m / (np.sqrt(v) + EPSILON)
        moments = {f"{n}.mean": a for n, a in mean.items()}
        return losses, {**w, **moments, "x.mean": running}


def _loss_and_gradients(w: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray) -> Any:
    h = np.maximum(x @ w["w1"] + w["b"], 0)
    scores = h @ w["w2"]
    e = np.exp(scores - scores.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(x)), labels]).mean()
    d = (p - np.eye(CLASSES)[labels]) / len(x)
    dz = d @ w["w2"].T * (h > 0)
    return loss, {"w2": h.T @ d, "w1": x.T @ dz, "b": dz.sum(0)}


def _floats(name: str, *shape: int, dtype: str = "float32") -> Any:
    return value_info(name, dtype, list(shape))


class _Plan:
    """The graphs of one plan; all ranks have the same ones."""

    def __init__(self, of: Classifier, ranks: int, zero: bool, micro: int, half: bool) -> None:
        self.of, self.ranks, self.zero = of, ranks, zero and ranks > 1
        self.micro, self.half = micro, half
        self.rows, self.group = of.batch // ranks, list(range(ranks))
        self.token = 0

    def is_sharded(self, name: str) -> bool:
        return self.zero and name in self.of.weights

    def part(self, name: str, array: np.ndarray, rank: int) -> np.ndarray:
        if not self.is_sharded(name):
            return array
        return np.ascontiguousarray(np.split(array, self.ranks)[rank])

    def _shape(self, name: str) -> list[int]:
        whole = {**self.of.weights, **self.of.buffers}[name]
        return list(self.part(name, whole, 0).shape)

    def _collective(self, op: str, x: str, y: str, **attributes: Any) -> Any:
        self.token += 1
        return collective(op, x, y, self.token - 1, group=self.group, **attributes)

    def gradients(self) -> Any:
        self.token = 0
        make = helper.make_node
        nodes = [self._whole(name) for name in self.of.weights]
        nodes += [
            make("MatMul", ["x", "w1.all"], ["z"], name="fc1"),
            make("Add", ["z", "b.all"], ["zb"]),
            make("Relu", ["zb"], ["h"]),
            make("MatMul", ["h", "w2.all"], ["scores"], name="fc2"),
            make("OneHot", ["labels", "depth", "off_on"], ["hot"]),
            make("LogSoftmax", ["scores"], ["logp"], name="log"),
            make("Mul", ["hot", "logp"], ["own"]),
            make("ReduceSum", ["own"], ["sum"], keepdims=0),
            make("Mul", ["sum", "minus_share"], ["loss.part"]),
            self._collective("AllReduce", "loss.part", "loss", reduction="sum"),
            make("Exp", ["logp"], ["p"]),
            make("Sub", ["p", "hot"], ["d0"]),
            make("Mul", ["d0", "share"], ["d"]),
            make("Transpose", ["h"], ["ht"]),
            make("MatMul", ["ht", "d"], ["g.w2"]),
            make("Transpose", ["w2.all"], ["w2t"]),
            make("MatMul", ["d", "w2t"], ["dh"]),
            make("Greater", ["h", "zero"], ["alive"]),
            make("Where", ["alive", "dh", "zero"], ["dz"]),
            make("Transpose", ["x"], ["xt"]),
            make("MatMul", ["xt", "dz"], ["g.w1"]),
            make("ReduceSum", ["dz", "axis"], ["g.b"], keepdims=0),
            make("ReduceMean", ["x", "axis"], ["m"], keepdims=0),
            make("Mul", ["m", "mean_share"], ["m.part"]),
            self._collective("AllReduce", "m.part", "m.new", reduction="sum"),
            make("Mul", ["x.mean", "decay"], ["m.old"]),
            make("Add", ["m.old", "m.new"], ["x.mean.new"]),
        ]
        for name in self.of.weights:
            nodes += self._handed_on(name)
        inputs = [
            _floats("x", self.rows, FEATURES),
            value_info("labels", "int64", [self.rows]),
            _floats("x.mean", FEATURES),
            *(_floats(name, *self._shape(name)) for name in self.of.weights),
            *([_floats("loss_scale")] if self.half else []),
        ]
        if self.micro > 1:
            inputs += [self._gradient(name, ".sum") for name in self.of.weights]
        outputs = [_floats("loss"), _floats("x.mean.new", FEATURES)]
        outputs += [self._gradient(name, ".grad") for name in self.of.weights]
        return model_of(nodes, inputs, outputs, self._constants())

    def _gradient(self, name: str, suffix: str) -> Any:
        return _floats(name + suffix, *self._shape(name), dtype=self._narrow)

    @property
    def _narrow(self) -> str:
        return "float16" if self.half else "float32"

    def _whole(self, name: str) -> Any:
        if self.is_sharded(name):
            return self._collective("AllGather", name, f"{name}.all", dim=0)
        return helper.make_node("Identity", [name], [f"{name}.all"])

    def _handed_on(self, name: str) -> list[Any]:
        """Sum the gradient over the ranks, scale it, and add it to those of other micro-batches."""
        make, last = helper.make_node, f"{name}.grad"
        scatter = self.is_sharded(name)
        op, more = ("ReduceScatter", {"dim": 0}) if scatter else ("AllReduce", {})
        nodes = [self._collective(op, f"g.{name}", f"r.{name}", reduction="sum", **more)]
        found = f"r.{name}"
        if self.half:
            nodes.append(make("Mul", [found, "loss_scale"], [f"s.{name}"]))
            nodes.append(make("Cast", [f"s.{name}"], [f"h.{name}"], to=onnx.TensorProto.FLOAT16))
            found = f"h.{name}"
        adds = self.micro > 1
        nodes.append(make("Add", [f"{name}.sum", found], [last]) if adds else
                     make("Identity", [found], [last]))  # fmt: skip
        return nodes

    def _constants(self) -> dict[str, Any]:
        share = np.float32(1 / (self.of.batch * self.micro))
        return {
            "share": share,
            "minus_share": np.float32(-1 / self.of.batch),
            "mean_share": np.float32((1 - DECAY) / self.ranks),
            "decay": np.float32(DECAY),
            "zero": np.float32(0),
            "depth": np.int64(CLASSES),
            "off_on": np.array([0, 1], np.float32),
            "axis": np.array([0]),
        }

    def update(self) -> Any:
        make = helper.make_node
        inputs = [_floats("learning_rate"), _floats("step")]
        inputs += [_floats("loss_scale")] if self.half else []
        outputs, nodes = [], []
        for beta in ("beta1", "beta2"):
            nodes.append(make("Pow", [beta, "step"], [f"{beta}.power"]))
            nodes.append(make("Sub", ["one", f"{beta}.power"], [f"{beta}.correction"]))
        for w in self.of.weights:
            nodes += self._adam(w)
            for name in (w, f"{w}.mean", f"{w}.variance"):
                inputs.append(_floats(name, *self._shape(w)))
                outputs.append(_floats(f"{name}.new", *self._shape(w)))
            inputs.append(self._gradient(w, ".grad"))
        constants = {"beta1": BETA1, "beta2": BETA2, "one": 1.0, "epsilon": EPSILON}
        constants |= {"rest1": 1 - BETA1, "rest2": 1 - BETA2}
        return model_of(nodes, inputs, outputs, {n: np.float32(v) for n, v in constants.items()})

    def _adam(self, w: str) -> list[Any]:
        rows = []
        if self.half:
            rows.append(f"wide = Cast {w}.grad")
            rows.append("g = Div wide loss_scale")
        else:
            rows.append(f"g = Identity {w}.grad")
        rows += [
            f"m0 = Mul {w}.mean beta1",
            "m1 = Mul g rest1",
            f"{w}.mean.new = Add m0 m1",
            f"v0 = Mul {w}.variance beta2",
            "g2 = Mul g g",
            "v1 = Mul g2 rest2",
            f"{w}.variance.new = Add v0 v1",
            f"m = Div {w}.mean.new beta1.correction",
            f"v = Div {w}.variance.new beta2.correction",
            "root = Sqrt v",
            "least = Add root epsilon",
            "u = Div m least",
            "change = Mul u learning_rate",
            f"{w}.new = Sub {w} change",
        ]
        return [_node(row, w) for row in rows]

    def describe(self, folder: Path, content: dict[str, Any]) -> None:
        optimizer = {"name": "adam", "momentum": 0.9, "beta1": BETA1, "beta2": BETA2}
        content["training"] = {
            "loss": {"kind": "softmax-cross-entropy", "output": "scores", "labels": "labels"},
            "optimizer": {**optimizer, "epsilon": EPSILON, "weight_decay": 0.0},
            "micro_batches": self.micro,
            "clip_norm": None,
            "precision": self._narrow,
            "recompute": "none",
            "start": "weights",
            "hyper": self._hyper(),
            "state": [entry for w in self.of.weights for entry in self._state(w)]
            + [self._entry("x.mean", "buffer", None, "gradients", ["gradients"])],
            "gradients": [
                {
                    **self._tensor(f"{w}.grad", w, self._narrow),
                    "of": w,
                    "accumulator": f"{w}.sum" if self.micro > 1 else None,
                }
                for w in self.of.weights
            ],
            "loss_output": "loss",
        }
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        listed = {path.relative_to(folder).as_posix(): sha256(path) for path in paths}
        del listed["plan.json"]
        content["files"] = listed

    def _hyper(self) -> list[dict[str, Any]]:
        roles = {"learning_rate": ["update"], "step": ["update"]}
        if self.half:
            roles["loss_scale"] = ["gradients", "update"]
        return [
            {"name": role, "role": role, "dtype": "float32", "graphs": graphs}
            for role, graphs in roles.items()
        ]

    def _state(self, w: str) -> list[dict[str, Any]]:
        moments = [
            self._entry(f"{w}.{kind}", kind, w, "update", ["update"])
            for kind in ("mean", "variance")
        ]
        return [self._entry(w, "parameter", None, "update", ["gradients", "update"]), *moments]

    def _entry(self, name: str, kind: str, of: str | None, graph: str, read_by: list[str]) -> Any:
        facts = {"kind": kind, "of": of, "result": f"{name}.new", "graph": graph}
        return {**self._tensor(name, of or name, "float32"), **facts, "read_by": read_by}

    def _tensor(self, name: str, like: str, dtype: str) -> dict[str, Any]:
        whole = {**self.of.weights, **self.of.buffers}[like]
        layout = ["S(0)"] if self.is_sharded(like) else ["R"]
        return tensor(name, whole.shape, layout, dtype)


def _node(row: str, w: str) -> Any:
    """Return the node of ``result = Op operand ...``; short names are those of one parameter."""
    result, _, op, *operands = row.split()
    shared = {"beta1", "beta2", "rest1", "rest2", "epsilon", "learning_rate", "loss_scale"}
    shared |= {"beta1.correction", "beta2.correction"}

    def full(name: str) -> str:
        return name if name in shared or name.split(".")[0] == w else f"{w}.{name}"

    more = {"to": onnx.TensorProto.FLOAT} if op == "Cast" else {}
    return helper.make_node(op, [full(n) for n in operands], [full(result)], **more)
