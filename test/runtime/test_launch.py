"""Plans, and programs that know no MPI, on ranks that another launcher started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from handmade import Perceptron, collective, model_of, value_info
from launched import RUN, free_port, run, start_rank, variables

from tensoropt.runtime.ops import library_path

HERE = Path(__file__).parent


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2)])
def test_a_plan_runs(perceptron: Perceptron, tmp_path: Path, mesh: tuple[int, int]) -> None:
    plan = perceptron.plan(tmp_path / "plan", mesh)
    first, *others = run(mesh[0] * mesh[1], [*RUN, plan, "--check", perceptron.model])
    assert (first[0], first[2]) == (0, "")
    assert first[1].splitlines()[-1] == "PASSED"
    assert others == [(0, "", "")] * len(others)


def test_a_check_that_fails_is_no_rank_that_failed(perceptron: Perceptron, tmp_path: Path) -> None:
    wrong = perceptron.plan(tmp_path / "wrong", mode="wrong")
    first, second = run(2, [*RUN, wrong, "--check", perceptron.model])
    assert (first[0], first[2]) == (1, "")
    assert first[1].splitlines()[-1] == "FAILED"
    assert second == (0, "", "")


def test_another_number_of_ranks(plan: Path) -> None:
    first, *others = run(3, [*RUN, plan])
    text = f"error: {plan}: needs 2 ranks, expected WORLD_SIZE 2, got: 3 ranks\n"
    assert first == (1, "", text)
    assert others == [(1, "", "")] * 2


@pytest.mark.parametrize("address", ["localhost", "::1"])
def test_names_and_ipv6(plan: Path, address: str) -> None:
    assert [status for status, *_ in run(2, [*RUN, plan], MASTER_ADDR=address)] == [0, 0]


def test_slurm_without_mpi(plan: Path) -> None:
    port = free_port()
    found = []
    for rank in (0, 1):
        environment = variables(rank, 2, port, SLURM_STEP_NUM_TASKS="2", SLURM_PROCID=str(rank))
        del environment["RANK"], environment["WORLD_SIZE"]
        found.append(start_rank([*RUN, plan], environment))
    assert [process.communicate(timeout=30)[1] for process in found] == ["", ""]
    assert [process.returncode for process in found] == [0, 0]


def test_torchrun(perceptron: Perceptron, plan: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "--module", "tensoropt.runtime.cli.run"]
    command += [plan, "--check", perceptron.model]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("PASSED") == 1
    assert "error" not in done.stderr


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory):
    """The command of a program whose graph sums up over a number of ranks."""

    def command(ranks: int, *what: str) -> list[object]:
        path = tmp_path_factory.mktemp("host") / "g.onnx"
        group = {"group": list(range(ranks)), "reduction": "sum"}
        node = collective("AllReduce", "x", "y", 0, "total", **group)
        info = [value_info(name, "float32", [2]) for name in "xy"]
        onnx.save(model_of([node], info[:1], info[1:]), path)
        return [sys.executable, HERE / "launch_host.py", library_path(), path, *what]

    return command


def test_a_program_without_mpi(host) -> None:
    assert run(3, host(3)) == [(0, "6\n", "")] * 3


def test_a_program_without_mpi_under_mpiexec(host) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-launcher", "fork", "-n", "2", *host(2)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n3\n", "")


def test_a_program_without_mpi_alone(host) -> None:
    done = subprocess.run(host(1), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.parametrize(
    ("what", "dead", "status", "text"),
    [
        ("status", 1, 3, "rank 1 of 3 ended with exit status 3"),
        ("killed", 1, -9, "rank 1 of 3 ended"),
        ("first-killed", 0, -9, "rank 0 of 3 ended"),
    ],
)
def test_a_rank_ends(host, what: str, dead: int, status: int, text: str) -> None:
    found = run(3, host(3, what))
    assert found.pop(dead) == (status, "6\n", "")
    assert found == [(1, "6\n", f"error: {text}\n")] * 2


def test_mpi_that_is_up_alone_already() -> None:
    code = "from mpi4py import MPI; from tensoropt.runtime.ops import library; library.start()"
    for status, _, err in run(2, [sys.executable, "-c", code]):
        assert status == 1
        assert "MPI is already up as a job of one process, expected it to be left to this" in err


def test_mpi_is_ended_once_whoever_ends_it() -> None:
    code = (
        "from tensoropt.runtime.launch.world import world\n"
        "import sys, time\n"
        "rank = world().rank\n"
        "from mpi4py import MPI\n"
        "MPI.Finalize()\n"
        "time.sleep(rank / 4)\n"
        "sys.exit(rank)\n"
    )
    assert run(3, [sys.executable, "-c", code]) == [(rank, "", "") for rank in range(3)]
