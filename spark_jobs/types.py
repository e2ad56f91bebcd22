"""The PySpark type of each kind of the core's types."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import types as spark_types
from pyspark.sql.types import StructField, StructType

from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

SPARK_TYPES: Mapping[Kind, Callable[[DataType], spark_types.DataType]] = {
    Kind.BOOLEAN: lambda _: spark_types.BooleanType(),
    Kind.TINYINT: lambda _: spark_types.ByteType(),
    Kind.SMALLINT: lambda _: spark_types.ShortType(),
    Kind.INT: lambda _: spark_types.IntegerType(),
    Kind.BIGINT: lambda _: spark_types.LongType(),
    Kind.FLOAT: lambda _: spark_types.FloatType(),
    Kind.DOUBLE: lambda _: spark_types.DoubleType(),
    Kind.DECIMAL: lambda t: spark_types.DecimalType(t.precision or 10, t.scale or 0),
    **{kind: lambda _: spark_types.StringType() for kind in (Kind.CHAR, Kind.VARCHAR, Kind.STRING)},
    **{kind: lambda _: spark_types.BinaryType() for kind in (Kind.BINARY, Kind.VARBINARY, Kind.BYTES)},
    Kind.DATE: lambda _: spark_types.DateType(),
    Kind.TIME: lambda _: spark_types.IntegerType(),
    Kind.TIMESTAMP: lambda _: spark_types.TimestampNTZType(),
    Kind.TIMESTAMP_LTZ: lambda _: spark_types.TimestampType(),
    Kind.ARRAY: lambda t: spark_types.ArrayType(spark_type(t.element_type)),
    Kind.MULTISET: lambda t: spark_types.MapType(spark_type(t.element_type), spark_types.IntegerType()),
    Kind.MAP: lambda t: spark_types.MapType(spark_type(t.key_type), spark_type(t.element_type)),
    Kind.ROW: lambda t: StructType([StructField(f.name, spark_type(f.type)) for f in t.fields]),
}


def spark_type(data_type: DataType) -> spark_types.DataType:
    """The PySpark type that holds ``data_type``; ``DataType.spark`` is the same as text."""
    return SPARK_TYPES[data_type.kind](data_type)
