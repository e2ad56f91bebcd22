"""The PySpark type of each kind of the core's types."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import types as spark_types
from pyspark.sql.types import StructField, StructType

from app.core.types.kinds import DataType

_SPARK_TYPES: Mapping[str, Callable[[DataType], spark_types.DataType]] = {
    "BOOLEAN": lambda _: spark_types.BooleanType(),
    "TINYINT": lambda _: spark_types.ByteType(),
    "SMALLINT": lambda _: spark_types.ShortType(),
    "INT": lambda _: spark_types.IntegerType(),
    "BIGINT": lambda _: spark_types.LongType(),
    "FLOAT": lambda _: spark_types.FloatType(),
    "DOUBLE": lambda _: spark_types.DoubleType(),
    "DECIMAL": lambda t: spark_types.DecimalType(t.precision or 10, t.scale or 0),
    **{kind: lambda _: spark_types.StringType() for kind in ("CHAR", "VARCHAR", "STRING")},
    **{kind: lambda _: spark_types.BinaryType() for kind in ("BINARY", "VARBINARY", "BYTES")},
    "DATE": lambda _: spark_types.DateType(),
    "TIME": lambda _: spark_types.IntegerType(),
    "TIMESTAMP": lambda _: spark_types.TimestampNTZType(),
    "TIMESTAMP_LTZ": lambda _: spark_types.TimestampType(),
    "ARRAY": lambda t: spark_types.ArrayType(spark_type(t.element_type)),
    "MULTISET": lambda t: spark_types.MapType(spark_type(t.element_type), spark_types.IntegerType()),
    "MAP": lambda t: spark_types.MapType(spark_type(t.key_type), spark_type(t.element_type)),
    "ROW": lambda t: StructType([StructField(f.name, spark_type(f.type)) for f in t.fields]),
}


def spark_type(data_type: DataType) -> spark_types.DataType:
    """The PySpark type that holds ``data_type``; ``DataType.spark`` is the same as text."""
    return _SPARK_TYPES[data_type.kind](data_type)
