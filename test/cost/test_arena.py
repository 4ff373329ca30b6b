"""What tensors touch of the arena that they come and go in."""

from __future__ import annotations

from tensoropt.compiler.cost.arena import Life, touched_bytes

MIB = 1 << 20


def test_tensors_that_live_together_lie_side_by_side() -> None:
    assert touched_bytes([Life(0, 2, 3 * MIB), Life(1, 2, 5 * MIB)]) == 8 * MIB


def test_memory_is_used_again() -> None:
    assert touched_bytes([Life(0, 1, 4 * MIB), Life(2, 3, 4 * MIB)]) == 4 * MIB


def test_a_tensor_between_two_that_die_leaves_a_gap() -> None:
    """The 3 MiB fit into neither 2 MiB before the one that stays nor what is free there."""
    lives = [Life(0, 1, 2 * MIB), Life(0, 9, 1 * MIB), Life(2, 3, 3 * MIB)]
    assert touched_bytes(lives) == 6 * MIB


def test_free_neighbours_become_one() -> None:
    lives = [Life(0, 1, 2 * MIB), Life(0, 1, 2 * MIB), Life(0, 9, MIB), Life(2, 3, 4 * MIB)]
    assert touched_bytes(lives) == 5 * MIB


def test_nothing_takes_nothing() -> None:
    assert touched_bytes([]) == touched_bytes([Life(0, 3, 0)]) == 0
