"""What a person may write: `make typecheck` reads it as a stranger's script, with no settings."""

from pathlib import Path
from typing import assert_type

import numpy as np

import tensoropt as to

model = to.load("m.onnx", dims={"batch": 8})
frontier = model.frontier(devices=4, device="h200", memory="16GiB", pins=["w=S(0)@x"])
assert_type(frontier, to.Frontier)
assert_type(frontier[1:], to.Frontier)
assert_type(frontier[0], to.Point)
assert_type(frontier.knee.time_s, float)
times: list[float] = [point.time_s for point in frontier.fits("1GiB")]
plan = frontier.knee.compile(Path("plan"), progress=print)
assert_type(plan, to.Plan)
with plan.session(threads=1) as session:
    outputs = session.run({"x": np.zeros((1, 2), np.float32)})
run = to.train(plan, {"x": np.zeros(3)}, steps=3, warmup=2, checkpoint=Path("saved"), threads=2)
assert_type(run.losses, tuple[float, ...])
print(plan.explain().text(), plan.diff("other").data.is_empty, to.__version__)
try:
    model.fewest_devices("1GiB", train=to.Training("mse:y,t"))
except to.UserError as error:
    print(error)

_ = frontier.nothing  # type: ignore[attr-defined]  # mistakes are found
model.frontier(devices=[4])  # type: ignore[arg-type]
to.train(plan, "data.npz", 3, threads="2")  # type: ignore[arg-type]
to.Session("plan", thread=2)  # type: ignore[call-arg]
_ = to.nothing  # type: ignore[attr-defined]
