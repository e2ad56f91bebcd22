"""The unions of Roaring bitmaps as SQL functions, which Spark does not have itself (merge-semantics §5.7)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyroaring import BitMap, BitMap64
from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.types import BinaryType

from app.core.functions import roaring

_Union = Callable[[Iterable[bytes | None] | None], bytes | None]
_Bitmap = TypeVar("_Bitmap", BitMap, BitMap64)
_pickling = threading.Lock()


def register_bitmaps(spark: SparkSession) -> None:
    """Gives the session ``kf_rbm32_union`` and ``kf_rbm64_union``: of an ARRAY<BINARY> of bitmaps, their union.

    Nulls in the array are skipped, no bitmap gives null, and a single one is given back as it is. Bytes that are no
    bitmap fail the query. Spark's workers need pyroaring and the Python of this process's version, but nothing of this
    project: its code travels by value.
    """
    with _sent_by_value():
        for name, union in {
            "kf_rbm32_union": _union(roaring.read_roaring32, roaring.write_roaring32),
            "kf_rbm64_union": _union(roaring.read_roaring64, roaring.write_roaring64),
        }.items():
            spark.udf.register(name, union, BinaryType())


def _union(read: Callable[[bytes], _Bitmap], write: Callable[[_Bitmap], bytes]) -> _Union:
    def union(bitmaps: Iterable[bytes | None] | None) -> bytes | None:
        present = [bytes(bitmap) for bitmap in bitmaps or () if bitmap is not None]
        if len(present) < 2:
            return present[0] if present else None
        united = read(present[0])
        for bitmap in present[1:]:
            united |= read(bitmap)
        return write(united)

    return union


@contextmanager
def _sent_by_value() -> Iterator[None]:
    """In the body, functions of ``roaring`` are pickled as code, not as names that a worker would import.

    Functions that are made inside a function, as the unions here, always are.
    """
    with _pickling:
        register_pickle_by_value(roaring)  # type: ignore[no-untyped-call]  # it has no annotations
        try:
            yield
        finally:
            unregister_pickle_by_value(roaring)  # type: ignore[no-untyped-call]  # it has no annotations
