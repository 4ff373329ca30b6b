"""What tensors touch of the arena that they come and go in."""

from __future__ import annotations

import numpy as np

from tensoropt.compiler.program._walk import touched_bytes

MIB = 1 << 20


def touched(*lives: tuple[int, int, int], expected: int = 0) -> int:
    """What is touched by tensors, each with its first and last moment and its bytes."""
    return touched_bytes(np.array(lives, np.int64).reshape(-1, 3), expected)


def test_tensors_that_live_together_lie_side_by_side() -> None:
    assert touched((0, 2, 3 * MIB), (1, 2, 5 * MIB)) == 8 * MIB


def test_memory_is_used_again() -> None:
    assert touched((0, 1, 4 * MIB), (2, 3, 4 * MIB)) == 4 * MIB


def test_a_tensor_between_two_that_die_leaves_a_gap() -> None:
    """The 3 MiB fit into neither 2 MiB before the one that stays nor what is free there."""
    lives = [(0, 1, 2 * MIB), (0, 9, 1 * MIB), (2, 3, 3 * MIB)]
    assert touched(*lives) == 6 * MIB


def test_free_neighbours_become_one() -> None:
    lives = [(0, 1, 2 * MIB), (0, 1, 2 * MIB), (0, 9, MIB), (2, 3, 4 * MIB)]
    assert touched(*lives) == 5 * MIB


def test_what_is_left_of_a_block_is_cut_only_where_it_is_twice_as_large() -> None:
    """Of 64 MiB the second tensor takes all that the first leaves, and the third a block anew."""
    lives = [(0, 3, 30 * MIB), (1, 3, 20 * MIB), (2, 3, 10 * MIB), (2, 3, 10 * MIB)]
    assert touched(*lives) == touched(*lives, expected=64 * MIB) == 70 * MIB


def test_nothing_takes_nothing() -> None:
    assert touched() == touched((0, 3, 0)) == 0
