"""Which output of a decoder is which of its inputs in the next step."""

import pytest

from tensoropt.compiler.shapes.caches import Cache, End, pair

SHAPE = (None, 4, None, 32)


def end(name, shape=SHAPE, dtype="f32"):
    return End(name, dtype, shape)


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.0.key", "present_key_values.0.key"),
        ("past_key_values_0_key", "present_0_key"),
        ("past_0_key", "present_0_key"),
        ("past.0.value", "present.0.value"),
        ("past_key_0", "present_key_0"),
        ("past_0", "present_0"),
        ("past_key_values.0.decoder.key", "present.0.decoder.key"),
    ],
)
def test_names(past, present):
    others = [end("present.7.key"), end("logits"), end(present)]
    found, refused = pair([end("input_ids"), end(past)], others)
    assert found == [Cache(past, present)]
    assert not refused


@pytest.mark.parametrize(
    ("past", "present", "why"),
    [
        (end("past.0.key"), end("present.1.key"), "expected one such as 'present.0.key'"),
        (end("past.0.key"), end("present.0.key", dtype="f16"), "of another type"),
        (end("past.0.key"), end("present.0.key", (None, 2, None, 16)), "dimensions 1, 3"),
        (end("past.0.key"), end("present.0.key", (None, 4, 32)), "another number of dimensions"),
        (end("past.0.key", (None, 4)), end("present.0.key", (None, 4)), "four or five"),
        (end("past.0.key", None), end("present.0.key"), "four or five"),
    ],
)
def test_refused_with_a_reason(past, present, why):
    found, refused = pair([past], [present])
    assert not found
    assert refused[0][0] == past.name
    assert why in refused[0][1]


def test_an_output_takes_one_place():
    found, refused = pair([end("past.0.key"), end("past_0_key")], [end("present.0.key")])
    assert [cache.past for cache in found] == ["past.0.key"]
    assert [name for name, _ in refused] == ["past_0_key"]


def test_words_that_only_begin_so_are_others():
    assert pair([end("pasture"), end("past_len_mask")], [end("presented")]) == (
        [],
        [("past_len_mask", "no output is called like it, expected one such as 'present_len_mask'")],
    )
