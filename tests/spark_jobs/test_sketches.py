"""Unions of bitmaps and sketches in Spark SQL mean what ``app.core`` says in Python, byte for byte once shown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyroaring import BitMap, BitMap64
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.connect.functions import expr
from pyspark.sql.connect.session import SparkSession

from app.core.functions import roaring, sketches
from spark_jobs.bitmaps import _sent_by_value, _union, register_bitmaps
from spark_jobs.session import SparkConnection

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden" / "sketches.json").read_text())
HLL = [bytes.fromhex(row["bytes"]) for row in ROWS if row["kind"] == "hll" and "name" in row]
THETA = [
    bytes.fromhex(row["bytes"])
    for row in ROWS
    if row["kind"] == "theta" and "name" in row and "updatable" not in row["name"] and "alpha" not in row["name"]
]
COLLECT = "collect_list(r.v) FILTER (WHERE r.k >= 0)"
STEPS = "aggregate({vs}, CAST(NULL AS BINARY), (a, b) -> CASE WHEN a IS NULL THEN b ELSE {join} END)"
# Twice, so that a union with registers never keeps the running estimate of one of its parts.
HLL_JOIN = "hll_union(hll_union(a, b, true), hll_union(a, b, true), true)"
# function -> (values, from a list, of two, Python's union, as shown)
Functions = dict[str, tuple[list[bytes], str, str, Callable[[bytes, bytes], bytes], Callable[[bytes], bytes]]]
FUNCTIONS: Functions = {
    "rbm32": (
        [roaring.write_roaring32(BitMap(range(a, a + n))) for a in (1, 5, 70_000) for n in (0, 1, 9, 5000)],
        "kf_rbm32_union({vs})",
        "kf_rbm32_union(array(a, b))",
        roaring.rbm32_union,
        bytes,
    ),
    "rbm64": (
        [roaring.write_roaring64(BitMap64(range(a, a + n))) for a in (1, 5, 2**63) for n in (0, 1, 9, 5000)],
        "kf_rbm64_union({vs})",
        "kf_rbm64_union(array(a, b))",
        roaring.rbm64_union,
        bytes,
    ),
    "hll_sketch": (
        HLL,
        STEPS.format(vs="{vs}", join=HLL_JOIN),
        HLL_JOIN,
        sketches.hll_union,
        sketches.hll_shown,
    ),
    "theta_sketch": (
        THETA,
        STEPS.format(vs="{vs}", join="theta_union(a, b)"),
        "theta_union(a, b)",
        sketches.theta_union,
        sketches.theta_shown,
    ),
}


@pytest.fixture
def session(spark: SparkConnection) -> SparkSession:
    session = spark.session()
    register_bitmaps(session)
    return session


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_fold_is_the_union_that_python_makes(session: SparkSession, name: str) -> None:
    values, fold, _, join, shown = FUNCTIONS[name]
    random = Random(5)
    groups = [random.sample(values, 3) for _ in range(60)]
    rows = [(k, bytearray(v)) for k, group in enumerate(groups) for v in group]
    grouped = session.createDataFrame(rows, "k int, v binary").alias("r").groupBy("k")
    found = grouped.agg(expr(fold.format(vs=COLLECT)).alias("v")).collect()
    assert {row.k: shown(bytes(row.v)) for row in found} == {
        k: join(join(a, b), c) for k, (a, b, c) in enumerate(groups)
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_states_are_joined_as_in_python(session: SparkSession, name: str) -> None:
    values, _, join_sql, join, shown = FUNCTIONS[name]
    random = Random(6)
    pairs = [(random.choice(values), random.choice(values)) for _ in range(60)]
    rows = [(k, bytearray(a), bytearray(b)) for k, (a, b) in enumerate(pairs)]
    found = session.createDataFrame(rows, "k int, a binary, b binary").selectExpr("k", f"{join_sql} AS v").collect()
    assert {row.k: shown(bytes(row.v)) for row in found} == {k: join(a, b) for k, (a, b) in enumerate(pairs)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_value_stays_as_it_was_given_and_none_is_null(session: SparkSession, name: str) -> None:
    values, fold, *_ = FUNCTIONS[name]
    rows: list[tuple[int, bytearray | None]] = [(k, bytearray(v)) for k, v in enumerate(values)]
    rows += [*((k, None) for k in range(len(values))), (len(values), None)]
    grouped = session.createDataFrame(rows, "k int, v binary").alias("r").groupBy("k")
    found = {row.k: row.v and bytes(row.v) for row in grouped.agg(expr(fold.format(vs=COLLECT)).alias("v")).collect()}
    assert found == {**dict(enumerate(values)), len(values): None}


@pytest.mark.parametrize("bits", [32, 64])
def test_the_union_of_an_array_skips_nulls(session: SparkSession, bits: int) -> None:
    one = roaring.write_roaring32(BitMap([5])) if bits == 32 else roaring.write_roaring64(BitMap64([5]))
    arrays = [f"array(NULL, X'{one.hex()}', NULL)", "array()", "array(NULL)", "CAST(NULL AS ARRAY<BINARY>)"]
    union = ", ".join(f"kf_rbm{bits}_union({array})" for array in arrays)
    assert list(session.sql(f"SELECT {union}").collect()[0]) == [one, None, None, None]


def test_bytes_that_are_no_bitmap_fail_the_query(session: SparkSession) -> None:
    with pytest.raises(PySparkException, match="end too early"):
        session.sql("SELECT kf_rbm32_union(array(X'00', X'01'))").collect()


def test_a_worker_needs_pyroaring_and_no_module_of_this_project(tmp_path: Path) -> None:
    with _sent_by_value():
        pickled = cloudpickle.dumps(_union(roaring.read_roaring64, roaring.write_roaring64))
    (tmp_path / "union").write_bytes(pickled)
    a, b = (roaring.write_roaring64(BitMap64(values)) for values in ([1, 2**40], range(9)))
    program = (
        "import pathlib, pickle, sys\n"
        "sys.modules.update(dict.fromkeys(['app', 'spark_jobs', 'datasketches']))\n"
        "union = pickle.loads(pathlib.Path('union').read_bytes())\n"
        f"print(union([bytes.fromhex({a.hex()!r}), None, bytes.fromhex({b.hex()!r})]).hex())\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == roaring.rbm64_union(a, b).hex()
