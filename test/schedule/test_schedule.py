"""Orders of operations: none higher than that given, and the lowest of all of a small program."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.schedule.problem import problem_of
from tensoropt.compiler.schedule.schedule import depth_first, in_order, lower_peak
from tensoropt.compiler.schedule.tasks import Task, Tasks, peaks, read_tasks
from tensoropt.dialects import onnx


def program(
    rng: random.Random, count: int, *, ends: bool = False, stages: tuple[str, ...] = ("",)
) -> Tasks:
    """Return random tasks, each of one tensor, and a return; ``ends`` lets some be read by none.

    Otherwise what nothing else reads, the last task does.
    """
    needs = [rng.sample(range(task), min(task, rng.randint(1, 2))) for task in range(count - 1)]
    read = {one for needed in needs for one in needed}
    needs.append([task for task in range(count - 1) if task not in read and not ends] or [0])
    tasks = [
        Task(
            (0, *(1 + one for one in needed)),
            (1 + task,),
            tuple(needed),
            _stage(stages, task, count),
        )
        for task, needed in enumerate(needs)
    ]
    end = Task((count,), (), (count - 1,), stages[-1])
    return Tasks([*tasks, end], [3, *(rng.randint(0, 9) for _ in range(count))], [0])


def _stage(stages: tuple[str, ...], task: int, count: int) -> str:
    return stages[task * len(stages) // count]


def orders(tasks: Tasks, done: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield every order that the tasks can have."""
    if len(done) == len(tasks.tasks):
        yield done
    for task, held in enumerate(tasks.tasks):
        last = task == len(tasks.tasks) - 1 and len(done) < task
        if task not in done and not last and set(held.after) <= set(done):
            yield from orders(tasks, (*done, task))


def peak(tasks: Tasks, order: list[int] | tuple[int, ...]) -> int:
    return max(peaks(in_order(tasks, order)))


@pytest.mark.parametrize("seed", range(60))
def test_the_lowest_of_all_orders_is_found(seed: int) -> None:
    tasks = program(random.Random(seed), 7)
    assert peak(tasks, lower_peak(tasks)) == min(peak(tasks, order) for order in orders(tasks))


@pytest.mark.parametrize("seed", range(60))
def test_an_order_is_one_of_those_that_can_be_and_never_higher(seed: int) -> None:
    rng = random.Random(seed)
    tasks = program(rng, rng.randint(2, 60), ends=True, stages=("forward", "backward", "update"))
    order = lower_peak(tasks)
    assert sorted(order) == list(range(len(tasks.tasks)))
    assert order[-1] == len(tasks.tasks) - 1
    place = {task: at for at, task in enumerate(order)}
    for task, held in enumerate(tasks.tasks):
        assert all(place[one] < place[task] for one in held.after)
    stages = [tasks.tasks[task].stage for task in order]
    assert stages == [task.stage for task in tasks.tasks]
    assert peak(tasks, order) <= max(peaks(tasks))
    assert lower_peak(tasks) == order


def test_random_orders_of_a_wide_program_become_low_again() -> None:
    """Eight chains of a large tensor that becomes a small one, started all at once."""
    chains, tasks, sizes = 8, [Task((), (0,), ())], [1]
    for chain in range(chains):
        tasks.append(Task((0,), (1 + chain,), (0,)))
    for chain in range(chains):
        tasks.append(Task((1 + chain,), (1 + chains + chain,), (1 + chain,)))
    small = range(1 + chains, 1 + 2 * chains)
    tasks.append(Task(tuple(small), (), tuple(small)))
    sizes = [1, *[100] * chains, *[1] * chains]
    given = Tasks(tasks, sizes)
    assert max(peaks(given)) == 1 + 100 * chains
    assert peak(given, lower_peak(given)) == 100 + chains


@pytest.mark.parametrize("seed", range(40))
def test_no_order_is_below_the_floor(seed: int) -> None:
    tasks = program(random.Random(seed), 6)
    last = [
        max(at for at, task in enumerate(tasks.tasks) if tensor in (*task.reads, *task.makes))
        for tensor in range(len(tasks.sizes))
    ]
    problem = problem_of(tasks, range(len(tasks.tasks) - 1), last)
    assert problem.given == max(peaks(tasks)[:-1]) - tasks.sizes[0]
    lowest = min(max(peaks(in_order(tasks, order))[:-1]) for order in orders(tasks))
    assert problem.floor <= lowest - tasks.sizes[0]


def test_depth_first_is_in_order() -> None:
    tasks = program(random.Random(0), 40, ends=True)
    place = {task: at for at, task in enumerate(depth_first(tasks))}
    assert all(place[o] < place[t] for t, task in enumerate(tasks.tasks) for o in task.after)


_DRAWING = """
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<8x8xf32> {topt.name = "x"},
                  %w: tensor<8x8xf32> {topt.name = "w", topt.param})
      -> (tensor<8x8xf32> {topt.name = "y"}) {
    %c = "onnx.Neg"(%w) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %0 = "onnx.MatMul"(%x, %c) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = "onnx.RandomNormalLike"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = "onnx.RandomNormalLike"(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %3 = "onnx.Add"(%1, %2) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %4 = "onnx.Add"(%3, %0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %4 : tensor<8x8xf32>
  }
}
"""


def test_tasks_are_counted_as_plans_predict_memory() -> None:
    with driver.new_context():
        module = driver.parse_text(_DRAWING)
    tasks = read_tasks(onnx.function(module))
    names = [op.name for op in tasks.operations]
    assert "onnx.Neg" not in names  # folded at load
    assert max(peaks(tasks)) == program_memory(module).transient_bytes
    first, second = (at for at, name in enumerate(names) if name == "onnx.RandomNormalLike")
    assert first in tasks.tasks[second].after


_SENDING = """
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<8xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"}) {
    %0 = shard.all_reduce %x on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    %1 = shard.all_slice %x on @mesh grid_axes = [0] slice_axis = 0
        : tensor<8xf32> -> tensor<4xf32>
    %2 = shard.reduce_scatter %0 on @mesh grid_axes = [0] scatter_dim = 0
        : tensor<8xf32> -> tensor<4xf32>
    %3 = "onnx.Add"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}
"""


def test_collectives_keep_their_order_and_a_local_slice_has_none() -> None:
    with driver.new_context():
        module = driver.parse_text(_SENDING)
    reduced, sliced, scattered, *_ = read_tasks(onnx.function(module)).tasks
    assert sliced.after == ()
    assert scattered.after == (0,)
    assert reduced.after == ()
