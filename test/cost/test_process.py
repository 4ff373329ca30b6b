"""What the process of a rank is predicted to take."""

from __future__ import annotations

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.process import Footprint, Loading, Process

PROCESS = Process(1000, 100, 50, 2, 0.5)


def test_all_parts_add_up() -> None:
    """Static 400, packed 30, fed 20, arena 10 with half of it in gaps, 3 nodes, 4 ranks."""
    held = Footprint(400, 10, packed_bytes=30, fed_bytes=20, nodes=3, arena_bytes=10)
    assert PROCESS.bytes(held, 4) == 1000 + 3 * 100 + 3 * 2 + 400 + 30 + 20 + 15


def test_a_job_that_trains_has_more() -> None:
    assert PROCESS.bytes(Footprint(0, 0, trains=True), 1) == 1050


def test_collectives_have_buffers() -> None:
    """Three times what is sent, up to 8 MiB, and 100 for each other rank."""
    process = Process(1000, exchange_bytes=100)

    def taken(sent_bytes: int, passed_bytes: int, ranks: int) -> int:
        held = Footprint(0, 0, sent_bytes=sent_bytes, passed_bytes=passed_bytes)
        return process.bytes(held, ranks)

    sent = 1 << 20
    assert taken(sent, sent, 4) == 1000 + 3 * sent + 3 * 100
    assert taken(20, 20, 4) == 1000
    assert taken(20, sent, 4) == 1000 + 3 * 20 + 3 * 100
    assert taken(3 << 20, 3 << 20, 2) == 1000 + (8 << 20) + 100
    assert taken(0, 0, 4) == 1000


def test_a_margin_is_of_all() -> None:
    process = Process(1000, 100, margin=0.1)
    assert process.rest_bytes(2) == 1210
    assert process.bytes(Footprint(400, 10), 2) == 1650


def test_what_takes_most_while_it_loads() -> None:
    assert PROCESS.bytes(Footprint(400, 10, loading_bytes=900), 1) == 1000 + 900


def test_weights_are_there_twice_while_they_are_packed() -> None:
    loading = Loading()
    for operator, size in (("Conv", 10), ("MatMul", 5), ("Gemm", 100), ("Gather", 1000)):
        loading.read(operator, size)
    assert loading.bytes() == 10 + 5 + 2 * 100


def test_products_that_are_fused_are_packed_after_the_others() -> None:
    loading = Loading()
    loading.read("Gemm", 100, fused=True)
    loading.read("Gemm", 40)
    assert loading.bytes() == 40 + 2 * 100


def test_a_convolution_whose_result_is_summed_up_is_there_once() -> None:
    loading = Loading()
    loading.read("Conv", 10, alone=True)
    loading.read("Conv", 100)
    assert loading.bytes() == 10 + 2 * 100 + 2 * 100


def test_a_convolution_is_there_twice_more_while_a_normalisation_becomes_part_of_it() -> None:
    loading = Loading()
    for size in (10, 30):
        loading.read("Conv", size)
    assert loading.bytes() == 2 * (10 + 30) + 2 * 30


def test_nothing_is_added_that_nobody_measured() -> None:
    assert load_device("h200").process_bytes(Footprint(400, 10, 30, 900, 20, 3), 4) == 410
    assert load_device("h200").rest_bytes(4) == 0


def test_the_description_of_processors_has_a_floor() -> None:
    assert load_device("cpu").rest_bytes(2) > load_device("cpu").rest_bytes(1) > 50e6
