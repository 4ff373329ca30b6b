"""Devices: the built-in ones, their links on a mesh, and what is wrong with a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensoropt.compiler.cost.device import Device, device_names, load_device
from tensoropt.compiler.cost.measurements import MeasuredCurve
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

GOOD = """
name = "toy"
launch_overhead_s = 1e-6
devices_per_node = 4
[peak_flop_per_s]
float32 = 1e12
float16 = 2e12
[efficiency]
contraction = 0.5
[memory]
bandwidth_bytes_per_s = 1e11
capacity_bytes = 1e9
[link.intra_node]
latency_s = 1e-6
bandwidth_bytes_per_s = 1e10
[link.network]
latency_s = 1e-5
bandwidth_bytes_per_s = 1e9
"""


def load(folder: Path, text: str) -> Device:
    path = folder / "toy.toml"
    path.write_text(text)
    return load_device(str(path))


@pytest.mark.parametrize("name", device_names())
def test_built_in_devices_are_plausible(name: str) -> None:
    device = load_device(name)
    assert device.name == name
    assert device.intra_node.latency_s < device.network.latency_s
    assert device.intra_node.bandwidth_bytes_per_s > device.network.bandwidth_bytes_per_s
    assert device.memory_bandwidth_bytes_per_s > device.intra_node.bandwidth_bytes_per_s
    assert device.peak_flop_per_s("float32") >= device.peak_flop_per_s("float64")


def test_built_in_names() -> None:
    known = "a100 b200 b300 cpu gb200 gtx1080ti h100 h200 l40s rtx_pro_6000 v100"
    assert device_names() == known.split()


def test_processors_and_known_gpus_may_have_the_kernel_of_attention(tmp_path: Path) -> None:
    assert all(load_device(name).has_attention for name in device_names())
    path = tmp_path / "toy.toml"
    for line, expected in (
        ("", False),
        ('provider = "cpu"', True),
        ("compute_capability = 9", True),
    ):
        path.write_text(f"{line}\n{GOOD}")
        load_device.cache_clear()
        assert load_device(str(path)).has_attention == expected
    assert not load_device("cpu:1,h100:1").has_attention


def test_unlike_gpus_have_the_kernels_of_all_architectures() -> None:
    assert load_device("cpu").architectures == ()
    assert load_device("h200:4,a100:4,h100:4").architectures == (80, 90)


def test_a_device_of_ones_own(tmp_path: Path) -> None:
    device = load(tmp_path, GOOD)
    assert (device.name, device.devices_per_node) == ("toy", 4)
    assert device.memory_capacity_bytes == 10**9
    assert device.network.latency_s == 1e-5
    assert device.peak_flop_per_s("float16") == 2e12
    assert device.peak_flop_per_s("bool") == device.peak_flop_per_s("float32") == 1e12
    assert hash(device) == hash(load(tmp_path, GOOD))


def test_a_capacity_may_be_unknown(tmp_path: Path) -> None:
    known, other = load(tmp_path, GOOD), tmp_path / "other.toml"
    other.write_text(GOOD.replace("capacity_bytes = 1e9\n", ""))
    assert known.without_capacity() == load_device(str(other)) != known


@pytest.mark.parametrize(
    ("shape", "inside"),
    [
        ((4,), [True]),
        ((8,), [False]),
        ((2, 4), [False, True]),
        ((4, 2), [False, True]),
        ((2, 2), [True, True]),
        ((2, 2, 2), [False, True, True]),
        ((3,), [True]),
        ((2, 3), [False, False]),
        ((8, 1), [False, True]),
    ],
)
def test_minor_axes_stay_within_a_node(
    tmp_path: Path, shape: tuple[int, ...], inside: list[bool]
) -> None:
    device, mesh = load(tmp_path, GOOD), Mesh(shape)
    assert [link == device.intra_node for link in device.axis_links(mesh)] == inside
    for axis, is_inside in enumerate(inside):
        groups = [mesh.group(rank, (axis,)) for rank in range(mesh.size)]
        assert is_inside == all(len({rank // 4 for rank in group}) == 1 for group in groups)


@pytest.mark.parametrize(
    ("groups", "mesh", "inside"),
    [
        ("a100:4,v100:4", (8,), (False,)),
        ("a100:4,v100:4", (2, 4), (False, True)),
        ("a100:6,v100:2", (2, 4), (False, False)),
        ("a100:6,v100:2", (4, 2), (False, True)),
        ("a100:16,v100:8", (3, 8), (False, True)),
    ],
)
def test_groups_are_on_nodes_of_their_own(
    groups: str, mesh: tuple[int, ...], inside: tuple[bool, ...]
) -> None:
    device = load_device(groups)
    links = device.axis_links(Mesh(mesh))
    assert tuple(link == device.intra_node for link in links) == inside


def test_unknown_name() -> None:
    expected = (
        "--device: expected one of a100, b200, b300, cpu, gb200, gtx1080ti, h100, h200, l40s, "
        "rtx_pro_6000, v100 or the path of a .toml file, got: 'h20', did you mean "
    )
    with pytest.raises(UserError, match=re.escape(expected)):
        load_device("h20")


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    expected = f"--device {path}: expected a readable file, got: No such file or directory"
    with pytest.raises(UserError, match=re.escape(expected)):
        load_device(str(path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "toy"', "name = ", ": expected TOML, got: Invalid value (at line 2, column 8)"),
        ('name = "toy"', "", ": 'name': expected a string, got: nothing"),
        ('"toy"', "3", ": 'name': expected a string, got: 3"),
        ("float32", "float64", ": 'peak_flop_per_s.float32': expected a positive number, got: no"),
        ("float32", "float31", ": 'peak_flop_per_s.float31': unknown element type, did you mean "),
        ("2e12", "-2e12", ": 'peak_flop_per_s.float16': expected a positive number, got: -2"),
        ("2e12", "nan", ": 'peak_flop_per_s.float16': expected a positive number, got: nan"),
        ("2e12", "inf", ": 'peak_flop_per_s.float16': expected a positive number, got: inf"),
        ("1e11", "true", ": 'memory.bandwidth_bytes_per_s': expected a positive number, got: True"),
        ("0.5", "1.5", "'efficiency.contraction': expected a positive number up to 1, got: 1.5"),
        ("node = 4", "node = 4.5", ": 'devices_per_node': expected a positive integer, go"),
        ("node = 4", "node = 0", ": 'devices_per_node': expected a positive integer, got: 0"),
        ("[link.network]", "[link.net]", ": 'link.network': expected a table, got: nothing"),
        ("1e-5", "0", ": 'link.network.latency_s': expected a positive number, got: 0"),
        ("[link.network]", "lat_s = 1\n[link.network]", "got: 'link.intra_node.lat_s', did you me"),
        (
            'name = "toy"',
            'name = "toy"\nefficency = 1',
            ": unknown key, expected one of memory, efficiency, link, name, peak_flop_per_s, "
            "launch_overhead_s, devices_per_node, step_overhead_s, host_launch_s, operator, "
            "collective, kernel, waiting, process, overlap, expected_error, measured_model, "
            "measured_on, compute_capability, provider, "
            "got: 'efficency', did you mean 'efficiency'?",
        ),
        ("[efficiency]\ncontraction = 0.5", "", ": 'efficiency': expected a table, got: nothing"),
        (
            "overhead_s = 1e-6",
            "overhead_s = 0",
            ": 'launch_overhead_s': expected a positive number of at least 1e-09, got: 0",
        ),
    ],
)
def test_wrong_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        load(tmp_path, text)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_in_place_of_a_table(tmp_path: Path) -> None:
    text = "efficiency = 0.5\n" + GOOD.replace("[efficiency]\ncontraction = 0.5", "")
    with pytest.raises(UserError, match=r"'efficiency': expected a table, got: 0\.5"):
        load(tmp_path, text)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"binary\.toml: expected TOML, got: "):
        load_device(str(path))


MEASURED = """
step_overhead_s = 2e-6
[operator.Add.float32]
launch_s = 1e-6
bytes_per_s = 7e9
fused = [["Conv"], ["", "Mul"]]
[operator."com.microsoft.Gelu".float16]
[collective.all_reduce.2]
lines = [[2e-6, 1e-10], [-1e-4, 3e-10]]
s_per_root_byte = 1e-8
"""


def measured(folder: Path, old: str = "", new: str = "") -> Device:
    first, rest = GOOD.split("\n[", 1)
    start, parts = MEASURED.split("[operator", 1)
    return load(folder, f"{first}{start}\n[{rest}\n[operator{parts}".replace(old, new, 1))


def test_what_was_measured_is_read(tmp_path: Path) -> None:
    device = measured(tmp_path)
    assert device.step_overhead_s == 2e-6
    own = device.operators["Add", "float32"]
    assert own.time_s(1e12, 1e6) == pytest.approx(1e-6 + 1e6 / 7e9)
    assert own.fused == {("Conv",), ("", "Mul")}
    assert device.operators["com.microsoft.Gelu", "float16"].time_s(1e12, 1e12) == 0.0
    curve = MeasuredCurve(((2e-6, 1e-10), (-1e-4, 3e-10)), 1e-8)
    assert device.collectives == {("all_reduce", 2): curve}
    assert hash(device) is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "Add",
            "Ad",
            "'operator.Ad': unknown operator, expected one of ONNX's or DOMAIN.NAME, did ",
        ),
        (
            "Add.float32",
            "Add.float",
            "'operator.Add.float': unknown element type, did you mean 'fl",
        ),
        ("launch_s", "launch", "unknown key, expected one of launch_s, flop_per_s, bytes_per_s, "),
        ("7e9", "-7e9", "'operator.Add.float32.bytes_per_s': expected a positive number, got: -"),
        ('["Conv"]', '"Conv"', "'operator.Add.float32.fused': expected a list of lists of strings"),
        ("all_reduce", "allreduce", "unknown collective, expected one of all_reduce, all_gather, "),
        ("reduce.2", "reduce.1", "'collective.all_reduce.1': expected 2 or more ranks, got: '1'"),
        ("[2e-6, 1e-10]", "[2e-6]", "'collective.all_reduce.2.lines': expected a list of pairs"),
        (
            "[2e-6, 1e-10]",
            "[0, 1e-10]",
            "'collective.all_reduce.2.lines': expected a list of pairs",
        ),
        ("1e-8", "-1e-8", "'collective.all_reduce.2.s_per_root_byte': expected a positive number"),
        ("3e-10", "-3e-10", "'collective.all_reduce.2.lines': expected a list of pairs"),
    ],
)
def test_wrong_measurements(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        measured(tmp_path, old, new)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


MACHINE = """
[measured_on]
processor = "a processor"
provider = "cpu"
ranks = 2
threads = 1
onnxruntime = "1.31"
"""


def operators(*names: str, launch_s: float = 1e-6) -> str:
    return "".join(f"\n[operator.{name}.float32]\nlaunch_s = {launch_s}\n" for name in names)


def error(mean: float) -> str:
    return f"\n[expected_error.time]\nmean = {mean}\np90 = 0.5\nsamples = 9\n"


def test_what_any_of_several_knows_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(GOOD + MACHINE + operators("Relu", "Add") + error(0.05))
    other = GOOD.replace('"toy"', '"another"') + MACHINE
    second.write_text(other + operators("Add", "Mul", launch_s=5e-6) + error(0.2))
    both = load_device(f"{first},{second}")
    assert both.name == "toy"
    known = {name: own.launch_s for (name, _), own in both.operators.items()}
    assert known == {"Relu": 1e-6, "Add": 1e-6, "Mul": 5e-6}  # of what both know, the first
    assert both.expected_error is not None
    assert both.expected_error.time is not None
    assert both.expected_error.time.mean == 0.2  # nobody has held both together against plans


@pytest.mark.parametrize(
    ("machine", "got"),
    [
        (
            MACHINE.replace("threads = 1", "threads = 2"),
            "2 ranks of 2 threads, cpu on a processor, ONNX Runtime 1.31",
        ),
        ("", "nothing measured"),
    ],
)
def test_several_are_of_one_kind_of_machine(tmp_path: Path, machine: str, got: str) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(GOOD + MACHINE)
    second.write_text(GOOD + machine)
    message = (
        f"--device {second}: expected a description measured on the same kind of machine as "
        f"{first} (2 ranks of 1 threads, cpu on a processor, ONNX Runtime 1.31), got: {got}"
    )
    with pytest.raises(UserError, match=re.escape(message)):
        load_device(f"{first},{second}")
    with pytest.raises(UserError, match="--device a100: expected a description measured"):
        load_device("h100,a100")


def test_gpus_with_published_slowdowns_overlap_collectives() -> None:
    shares = {
        name: device.overlap.share
        for name, device in ((name, load_device(name)) for name in device_names())
        if device.overlap is not None
    }
    hopper = dict.fromkeys(["b200", "b300", "gb200", "h100", "h200", "l40s", "rtx_pro_6000"], 0.4)
    assert shares == {"a100": 0.45, **hopper}
    for name in shares:
        device = load_device(name)
        assert device.overlap is not None and device.host_launch_s is not None
        assert device.overlap.start_s == 2 * device.host_launch_s
        assert device.overlaps and not device.without_overlap().overlaps
