"""Unions of serialised bitmaps and sketches: golden bytes of Java, the laws of a union, and damaged bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import datasketches
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from app.core.functions import roaring, sketches
from app.core.functions.roaring import read_roaring32, write_roaring32

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "golden" / "sketches.json").read_text())
UNIONS = [row for row in ROWS if "union" in row]
GOLDEN = {
    kind: {row["name"]: bytes.fromhex(row["bytes"]) for row in ROWS if row["kind"] == kind and "name" in row}
    for kind in ("hll", "theta")
}
UNION: dict[str, Callable[[bytes, bytes], bytes]] = {"hll": sketches.hll_union, "theta": sketches.theta_union}
FAULT: dict[str, Callable[[bytes], str | None]] = {"hll": sketches.hll_fault, "theta": sketches.theta_fault}
SHOWN: dict[str, Callable[[bytes], bytes]] = {"hll": sketches.hll_shown, "theta": sketches.theta_shown}

bitmaps = st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 40)), max_size=40).map(
    lambda pieces: BitMap(value for first, size in pieces for value in range(first, first + size))
)


def hll_content(value: bytes) -> tuple[int, bool, Any]:
    """What an HLL sketch says whatever its bytes: precision, whether it has registers, the registers or coupons."""
    plain = datasketches.hll_union(value[3])
    plain.update(datasketches.hll_sketch.deserialize(value))
    full = plain.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact()
    if full[7] & 3 == 2:
        return full[3], True, full[40:]
    return full[3], False, frozenset(struct.iter_unpack("<I", full[4 * full[0] :]))


def hll(precision: int, values: range, *, updatable: bool = False, target: Any = datasketches.HLL_8) -> bytes:
    sketch = datasketches.hll_sketch(precision, target)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize_updatable() if updatable else sketch.serialize_compact())


def theta(precision: int, values: range) -> bytes:
    sketch = datasketches.update_theta_sketch(precision)
    for value in values:
        sketch.update(value)
    return bytes(sketch.compact().serialize())


# --- 32-bit bitmaps ---------------------------------------------------------------------------------------------------


@given(bitmaps, bitmaps)
def test_a_union_of_bitmaps_has_the_values_of_both(a: BitMap, b: BitMap) -> None:
    united = roaring.rbm32_union(a.serialize(), b.serialize())
    assert BitMap.deserialize(united) == a | b
    assert united == write_roaring32(a | b)


def test_runs_are_written_only_where_java_writes_them() -> None:
    array = "3a3000000100000000000400100000006400650066006700" + "6900"
    assert write_roaring32(BitMap([100, 101, 102, 103, 105])).hex() == array
    assert write_roaring32(BitMap(range(7, 10))).hex() == "3a300000010000000000020010000000070008000900"
    assert write_roaring32(BitMap(range(7, 11))).hex() == "3b3000000100000300010007000300"


@pytest.mark.parametrize(
    ("damaged", "fault"),
    [
        ("", "end too early"),
        ("00" * 8, "do not begin"),
        ("3a300000ffffffff", "cannot have"),
        ("3a30000001000000000001001000000002000100", "not ascending"),
        ("3a3000000200000001000000000000001800000000000000" + "0000" * 2, "ascending order"),
        ("3b300000010000030002000000050003000100", "overlap"),
        ("3b3000000100000300010000ff0002", "overlap"),
        ("3b3000000100000300" + "0000", "is empty"),
        ("3a30000001000000000000001000000001000000", "follow the end"),
    ],
)
def test_bytes_that_are_no_bitmap_have_a_fault(damaged: str, fault: str) -> None:
    value = bytes.fromhex(damaged)
    assert fault in str(roaring.rbm32_fault(value))
    with pytest.raises(ValueError):
        roaring.rbm32_union(write_roaring32(BitMap([1])), value)


def test_a_bitmap_that_java_wrote_has_no_fault() -> None:
    value = bytes.fromhex("3a300000010000000000020010000000640065006600")
    assert roaring.rbm32_fault(value) is None
    assert list(read_roaring32(value)) == [100, 101, 102]


# --- Sketches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GOLDEN)
def test_sketches_that_java_wrote_are_read(kind: str) -> None:
    assert {name: FAULT[kind](value) for name, value in GOLDEN[kind].items() if FAULT[kind](value)} == {}


@pytest.mark.parametrize(
    "row", [row for row in UNIONS if row["kind"] == "theta"], ids=lambda row: "+".join(row["union"])
)
def test_a_union_of_theta_sketches_is_javas_byte_for_byte(row: dict[str, Any]) -> None:
    a, b = (GOLDEN["theta"][name] for name in row["union"])
    assert sketches.theta_union(a, b).hex() == row["bytes"]


@pytest.mark.parametrize("row", [row for row in UNIONS if row["kind"] == "hll"], ids=lambda row: "+".join(row["union"]))
def test_a_union_of_hll_sketches_has_the_content_of_javas(row: dict[str, Any]) -> None:
    a, b = (GOLDEN["hll"][name] for name in row["union"])
    united = sketches.hll_union(a, b)
    assert hll_content(united) == hll_content(bytes.fromhex(row["bytes"]))
    assert united[7] >> 2 & 3 == 0, "HLL_4"
    assert united[5] & 8, "compact"
    assert datasketches.hll_sketch.deserialize(united).get_estimate() == pytest.approx(row["estimate"], rel=0.04)


@pytest.mark.parametrize("kind", GOLDEN)
def test_a_union_is_commutative_and_associative_byte_for_byte(kind: str) -> None:
    random, union = Random(3), UNION[kind]
    pool = [*GOLDEN[kind].values()]
    for _ in range(150):
        a, b, c = random.choices(pool, k=3)
        assert union(a, b) == union(b, a)
        assert union(union(a, b), c) == union(a, union(b, c))


def test_the_smaller_precision_of_two_hll_sketches_stays() -> None:
    small, large = hll(4, range(300)), hll(10, range(5000))
    assert sketches.hll_union(small, large) == sketches.hll_union(large, small)
    united = datasketches.hll_sketch.deserialize(sketches.hll_union(small, large))
    assert united.lg_config_k == 4
    assert united.get_estimate() == pytest.approx(5000, rel=0.5)
    assert sketches.hll_union(hll(4, range(0)), hll(12, range(9)))[3] == 12, "an empty one has no say"


@given(st.integers(0, 3000), st.integers(1, 9000), st.integers(0, 3000), st.integers(1, 9000))
def test_a_union_of_theta_sketches_is_the_librarys(a: int, m: int, b: int, n: int) -> None:
    older, newer = theta(12, range(a, a + m)), theta(13, range(b, b + n))
    union = datasketches.theta_union(12)
    union.update(datasketches.compact_theta_sketch.deserialize(older))
    union.update(datasketches.compact_theta_sketch.deserialize(newer))
    expected = bytearray(union.get_result().serialize())
    ours = sketches.theta_union(older, newer)
    if expected[0] > 1:
        expected[12:16] = struct.pack("<f", 1.0)  # where C++ leaves 0
    assert ours[8:] == bytes(expected[8:])
    assert ours[0] == expected[0]


def test_sketches_that_spark_did_not_unite_are_shown_as_they_are() -> None:
    for name in ("HLL_4/list", "HLL_6/set", "HLL_8/hll", "HLL_4/hll_updatable", "aux"):
        assert sketches.hll_shown(GOLDEN["hll"][name]) == GOLDEN["hll"][name]
    for name in ("empty", "single", "few", "few_unordered", "k16_unordered"):
        assert sketches.theta_shown(GOLDEN["theta"][name]) == GOLDEN["theta"][name]


def test_other_forms_are_shown_compact() -> None:
    shown = sketches.hll_shown(hll(12, range(50), updatable=True))
    assert shown[5] & 8
    assert hll_content(shown) == hll_content(hll(12, range(50)))
    registers = datasketches.hll_union(10)
    for first in (0, 3000):
        registers.update(datasketches.hll_sketch.deserialize(hll(10, range(first, first + 5000))))
    united = registers.get_result(datasketches.HLL_8)
    shown = datasketches.hll_sketch.deserialize(sketches.hll_shown(united.serialize_updatable()))
    assert shown.tgt_type == datasketches.HLL_4
    assert shown.get_estimate() == united.get_estimate()
    compressed = sketches.theta_shown(GOLDEN["theta"]["compressed"])
    assert compressed[1] == 3
    assert compressed == sketches.theta_union(compressed, compressed)
    assert sketches.theta_shown(GOLDEN["theta"]["few_updatable"])[2] == 3


@pytest.mark.parametrize("kind", GOLDEN)
def test_every_shorter_piece_has_a_fault(kind: str) -> None:
    for name, value in GOLDEN[kind].items():
        if len(value) < 400:
            faultless = [size for size in range(len(value)) if FAULT[kind](value[:size]) is None]
            # The end of an updatable list or of a table of exceptions is free places, which need not be there.
            assert not faultless or "updatable" in name, name


def test_the_bytes_of_one_kind_are_a_fault_of_the_others() -> None:
    assert "do not begin" in str(sketches.hll_fault(GOLDEN["theta"]["few"]))
    assert "do not begin" in str(sketches.theta_fault(GOLDEN["hll"]["HLL_4/list"]))
    assert "do not begin" in str(roaring.rbm32_fault(GOLDEN["hll"]["HLL_4/list"]))


@pytest.mark.parametrize(
    ("name", "place", "byte", "fault"),
    [
        ("HLL_4/list", 0, 3, "header"),
        ("HLL_4/list", 3, 22, "header"),
        ("HLL_4/list", 6, 8, "lists too many"),
        ("HLL_4/list", 11, 0, "twice or none"),
        ("HLL_4/list", 6, 4, "bytes and should have"),
        ("HLL_6/set", 3, 7, "precision"),
        ("HLL_4/hll", 6, 1, "contradict"),
        ("HLL_4/hll", 32, 9, "contradict"),
        ("HLL_4/hll", 40, 0xFF, "exceptions"),
        ("HLL_4/hll", 20, 1, "sums"),
        ("HLL_8/hll", 15, 0xFF, "sums"),
        ("HLL_8/hll", 40, 64, "sums"),
        ("HLL_8/hll", 36, 1, "bytes and should have"),
    ],
)
def test_hll_sketches_that_contradict_themselves_have_a_fault(name: str, place: int, byte: int, fault: str) -> None:
    value = bytearray(GOLDEN["hll"][name])
    value[place] = byte
    assert fault in str(sketches.hll_fault(bytes(value)))
    with pytest.raises(ValueError, match=fault):
        sketches.hll_union(GOLDEN["hll"]["empty"], bytes(value))


@pytest.mark.parametrize(
    ("name", "place", "byte", "fault"),
    [
        ("few", 1, 2, "serial version 2"),
        ("few", 0, 4, "header"),
        ("few", 6, 205, "seed"),
        ("few", 8, 9, "should have"),
        ("few", 23, 0xFF, "beyond its limit"),
        ("few_updatable", 4, 200, "header"),
        ("compressed", 3, 255, "cannot be read"),
    ],
)
def test_theta_sketches_that_contradict_themselves_have_a_fault(name: str, place: int, byte: int, fault: str) -> None:
    value = bytearray(GOLDEN["theta"][name])
    value[place] = byte
    assert fault in str(sketches.theta_fault(bytes(value)))


@pytest.mark.parametrize("kind", GOLDEN)
def test_random_damage_never_breaks_the_process(kind: str) -> None:
    random = Random(11)
    pool = [value for value in GOLDEN[kind].values() if len(value) < 3000]
    for _ in range(3000):
        value = bytearray(random.choice(pool))
        for _ in range(random.choice([1, 1, 3])):
            value[random.randrange(min(len(value), 44))] = random.choice([0, 1, 127, 255, random.randrange(256)])
        damaged = bytes(value)
        if FAULT[kind](damaged) is None:
            assert FAULT[kind](SHOWN[kind](damaged)) is None
            assert FAULT[kind](UNION[kind](damaged, random.choice(pool))) is None
