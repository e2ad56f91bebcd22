"""Java's serialisation of 64-bit Roaring bitmaps: golden bytes of Java, and random bitmaps."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from app.core.functions.roaring import rbm64_fault, rbm64_union, read_roaring64, write_roaring64

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "golden" / "roaring64.json").read_text())
OPTIMISED = {case["name"]: bytes.fromhex(case["optimised"]) for case in GOLDEN}

values = st.one_of(
    st.integers(0, 2**64 - 1),
    st.builds(lambda high, low: high << 16 | low, st.integers(0, 300), st.integers(0, 20)),
    st.builds(lambda byte, place: byte << place, st.integers(0, 255), st.sampled_from(range(0, 64, 8))),
)
ranges = st.builds(lambda first, size: range(first, min(first + size, 2**64)), values, st.integers(1, 30))
bitmaps = st.lists(ranges, max_size=60).map(lambda found: BitMap64(value for piece in found for value in piece))


def bitmap_of(pieces: list[list[int]]) -> BitMap64:
    return BitMap64(value for first, last in pieces for value in range(first, last + 1))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_bytes_of_java_are_read(case: dict[str, Any]) -> None:
    expected = bitmap_of(case["ranges"])
    assert read_roaring64(bytes.fromhex(case["optimised"])) == expected
    assert read_roaring64(bytes.fromhex(case.get("plain", case["optimised"]))) == expected


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_a_bitmap_is_written_in_the_bytes_of_java(case: dict[str, Any]) -> None:
    assert write_roaring64(bitmap_of(case["ranges"])).hex() == case["optimised"]


@given(bitmaps)
def test_what_is_written_is_read(bitmap: BitMap64) -> None:
    assert read_roaring64(write_roaring64(bitmap)) == bitmap


@given(bitmaps, bitmaps)
def test_a_union_has_the_values_of_both(a: BitMap64, b: BitMap64) -> None:
    assert rbm64_union(write_roaring64(a), write_roaring64(b)) == write_roaring64(a | b)


def test_containers_that_java_has_not_tidied_up_are_read() -> None:
    """Places of removed containers, an array where a bitmap is due, a bitmap where an array is, runs that touch."""
    leaf = "01 01000000 00000000 04 0000 00 000000000000 01000000 00000000 01000000 fe 03000000 00"
    end = "00 01000000 00000000 00000000 01000000"
    many = list(range(0, 10_000, 2))
    array = "01 02 88130000" + b"".join(value.to_bytes(2, "little") for value in many).hex()
    assert read_roaring64(bytes.fromhex(leaf + array + end)) == BitMap64(many)
    bitmap = "01 01 02000000 05" + "00" * 8191
    assert read_roaring64(bytes.fromhex(leaf + bitmap + end)) == BitMap64([0, 2])
    runs = "01 00 06000000 0200 0500 0200 0800 0200"
    assert write_roaring64(read_roaring64(bytes.fromhex(leaf + runs + end))) == write_roaring64(BitMap64(range(5, 11)))
    unused = (leaf + array + end).replace("fe 03000000 00", "fe 03000000 01 02 01000000 0700")
    assert read_roaring64(bytes.fromhex(unused)) == BitMap64(many)


@pytest.mark.parametrize("name", ["single", "three values side by side", "9 children", "49 children"])
def test_every_shorter_or_longer_piece_has_a_fault(name: str) -> None:
    whole = OPTIMISED[name]
    assert rbm64_fault(whole) is None
    assert all(rbm64_fault(whole[:size]) for size in range(len(whole)))
    assert rbm64_fault(whole + b"\x00") == "1 bytes follow the end of the bitmap"


@pytest.mark.parametrize(
    ("name", "place", "byte", "fault"),
    [
        ("single", 0, 2, "do not begin"),
        ("single", 1, 2, "1 leaves and says 2"),
        ("single", 9, 5, "not well formed"),
        ("single", 19, 1, "no container"),
        ("single", 37, 3, "no container of kind 3"),
        ("single", 38, 0, "cannot hold 0"),
        ("4 children", 12, 7, "not well formed"),
        ("4 children", 10, 9, "not well formed"),
        ("4 children", 31, 255, "ascending"),
        ("bitmap container", 50, 0, "says 5000"),
    ],
)
def test_bytes_that_contradict_themselves_have_a_fault(name: str, place: int, byte: int, fault: str) -> None:
    data = bytearray(OPTIMISED[name])
    data[place] = byte
    assert fault in str(rbm64_fault(bytes(data)))
    with pytest.raises(ValueError, match=fault):
        rbm64_union(bytes(data), OPTIMISED["single"])


def test_random_damage_never_breaks_the_process() -> None:
    random = Random(7)
    for _ in range(1500):
        data = bytearray(random.choice(list(OPTIMISED.values())[:12]))
        for _ in range(random.choice([1, 1, 3])):
            data[random.randrange(min(len(data), 60))] = random.choice([0, 1, 255, random.randrange(256)])
        if rbm64_fault(bytes(data)) is None:
            assert rbm64_fault(rbm64_union(bytes(data), OPTIMISED["a run"])) is None
