"""CREATE TABLE read: both dialects, what is left out with a warning, what is refused, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.core.ddl.reader import DEEPEST, MOST_CHARACTERS, MOST_STATEMENTS, TableStatement, read_tables
from app.core.errors import FaultCode, Invalid, Violation
from app.core.table.schema import TableSchema
from app.core.types.dialects import Dialect

KEY = "PRIMARY KEY (id) NOT ENFORCED"


def only(text: str, dialect: Dialect | None = None) -> TableStatement:
    [statement] = read_tables(text, dialect)
    return statement


def fields(text: str, dialect: Dialect | None = None) -> list[Mapping[str, Any]]:
    return list(only(text, dialect).body["fields"])


def types(*columns: str, dialect: Dialect) -> list[Any]:
    listed = ", ".join(f"c{number} {column}" for number, column in enumerate(columns))
    return [field["type"] for field in fields(f"CREATE TABLE t ({listed})", dialect)]


def faults(text: str, dialect: Dialect | None = None) -> list[Violation]:
    with pytest.raises(Invalid) as refused:
        read_tables(text, dialect)
    return list(refused.value.violations)


def column(body: str) -> dict[str, Any]:
    [field] = fields(f"CREATE TABLE t ({body})")
    return dict(field)


def test_a_statement_of_flink() -> None:
    statement = only(
        """
        -- orders; assembled from three systems
        CREATE TABLE IF NOT EXISTS paimon.shop.`my orders` (
          id BIGINT NOT NULL COMMENT 'it''s; the key', /* nothing; here */
          `day` STRING,
          address ROW<street STRING NOT NULL, -- why not
                      `zip code` ARRAY<INT> 'five; digits'>,
          key STRING,
          comment VARCHAR(10) NOT NULL DEFAULT 'a' COMMENT 'c',
          PRIMARY KEY (id, `day`) NOT ENFORCED,
        ) COMMENT 'all of them' PARTITIONED BY (`day`)
        WITH ('merge-engine' = 'partial-update', 'bucket' = '4',);
        """
    )
    assert (statement.source.dialect, statement.path) == (Dialect.FLINK, ("paimon", "shop", "my orders"))
    assert statement.if_not_exists
    inside = [{"id": 0, "name": "street", "type": "STRING NOT NULL"}]
    inside.append(
        {"id": 1, "name": "zip code", "type": {"type": "ARRAY", "element": "INT"}, "description": "five; digits"}
    )
    assert statement.body == {
        "fields": [
            {"name": "id", "type": "BIGINT NOT NULL", "description": "it's; the key"},
            {"name": "day", "type": "STRING"},
            {"name": "address", "type": {"type": "ROW", "fields": inside}},
            {"name": "key", "type": "STRING"},
            {"name": "comment", "type": "VARCHAR(10) NOT NULL", "defaultValue": "a", "description": "c"},
        ],
        "primaryKeys": ["id", "day"],
        "partitionKeys": ["day"],
        "options": {"merge-engine": "partial-update", "bucket": "4"},
        "comment": "all of them",
    }


def test_a_statement_of_spark() -> None:
    statement = only(
        r"""
        CREATE TABLE shop.orders (
          id LONG, `using` STRUCT<x: INT NOT NULL COMMENT 'it\'s', `y z`: ARRAY<STRING>> COMMENT "d",
          at TIMESTAMP, placed TIMESTAMP_NTZ, raw BINARY, note STRING DEFAULT 'C:\\n'
        ) USING paimon PARTITIONED BY (dt STRING)
        TBLPROPERTIES ('primary-key' = 'id,dt', bucket = 3, file.format "orc") COMMENT 'x'
        """
    )
    assert (statement.source.dialect, statement.name) == (Dialect.SPARK, "orders")
    schema = TableSchema.from_json(statement.body)
    assert [column.type.sql for column in schema.columns] == [
        "BIGINT NOT NULL",
        "ROW<`x` INT NOT NULL, `y z` ARRAY<STRING>>",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "TIMESTAMP(6)",
        "BYTES",
        "STRING",
        "STRING NOT NULL",
    ]
    assert (schema.primary_key, schema.partition_keys) == (("id", "dt"), ("dt",))
    assert schema.options == {"bucket": "3", "file.format": "orc"}
    assert schema.columns[1].type.fields[0].description == "it's"
    assert (schema.columns[1].description, schema.columns[5].default, schema.comment) == ("d", r"C:\n", "x")


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED)", Dialect.FLINK),
        ("CREATE TABLE t (id INT) WITH ('a' = 'USING paimon')", Dialect.FLINK),
        ("CREATE TABLE t (id INT /* STRUCT<a: INT> */)", Dialect.FLINK),
        ("CREATE TABLE t (`long` INT, `using` INT, id INT)", Dialect.FLINK),
        ("CREATE TABLE t (id INT) USING paimon", Dialect.SPARK),
        ("CREATE TABLE t (id INT) using PAIMON", Dialect.SPARK),
        ("CREATE TABLE t (id INT) TBLPROPERTIES ('a' = 'b')", Dialect.SPARK),
        ("CREATE TABLE t (id INT, s struct<a int>)", Dialect.SPARK),
        ("CREATE TABLE t (id INT, s STRUCT\\<a INT\\>)", Dialect.SPARK),
        ("CREATE TABLE t (id LONG)", Dialect.SPARK),
        ("CREATE TABLE t (id INT, n short NOT NULL)", Dialect.SPARK),
        ("CREATE TABLE t (id INT, at TIMESTAMP_NTZ)", Dialect.SPARK),
    ],
)
def test_the_dialect_is_reported_by_the_words_that_only_spark_has(text: str, dialect: Dialect) -> None:
    assert only(text).source.dialect is dialect


def test_a_word_means_what_it_means_in_the_dialect() -> None:
    words = ("TIMESTAMP", "BINARY", "DOUBLE", "DECIMAL", "INTEGER", "CHAR(3)")
    assert types(*words, dialect=Dialect.FLINK) == [
        "TIMESTAMP(6)", "BINARY(1)", "DOUBLE", "DECIMAL(10, 0)", "INT", "CHAR(3)",
    ]  # fmt: skip
    assert types(*words, dialect=Dialect.SPARK) == [
        "TIMESTAMP(6) WITH LOCAL TIME ZONE", "BYTES", "DOUBLE", "DECIMAL(10, 0)", "INT", "CHAR(3)",
    ]  # fmt: skip
    assert types("BYTE", "SHORT", "LONG", "REAL", "TIMESTAMP_LTZ", dialect=Dialect.SPARK) == [
        "TINYINT", "SMALLINT", "BIGINT", "FLOAT", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    ]  # fmt: skip
    [fault] = faults("CREATE TABLE t (a TIMESTAMP(3)) USING paimon")
    assert (fault.code, "takes no parameters" in fault.message) == (FaultCode.UNKNOWN_TYPE, True)


@pytest.mark.parametrize(
    ("literal", "default"),
    [
        ("'a'", "a"),
        ("'it''s'", "it's"),
        ("''", ""),
        ("'''a'''", "''a''"),
        ("5", "5"),
        ("-1.50", "-1.50"),
        ("+3", "+3"),
        ("true", "TRUE"),
        ("DATE '2024-01-31'", "2024-01-31"),
        ("timestamp '2024-01-31 10:00:00'", "2024-01-31 10:00:00"),
        ("NULL", None),
    ],
)
def test_a_default_is_a_literal(literal: str, default: str | None) -> None:
    assert column(f"a STRING DEFAULT {literal} NOT NULL COMMENT 'c'") == {
        "name": "a",
        "type": "STRING NOT NULL",
        "description": "c",
        **({} if default is None else {"defaultValue": default}),
    }


@pytest.mark.parametrize("expression", ["CURRENT_TIMESTAMP", "now()", "CAST('a' AS DATE)", "INTERVAL '1'"])
def test_a_default_that_is_computed_is_refused(expression: str) -> None:
    [fault] = faults(f"CREATE TABLE t (a STRING DEFAULT {expression})")
    assert fault.code is FaultCode.ILLEGAL_DEFAULT


LEFT_OUT = {
    "cost AS price * (quantity + 1) COMMENT 'c'": "'cost'",
    "hot AS CAST(price IS NOT NULL AND (price >= 0.5 OR a <> 'x') AS INT)": "'hot'",
    "at TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL": "'at'",
    "b STRING GENERATED ALWAYS AS (lower(a))": "'b'",
    "WATERMARK FOR `at` AS `at` - INTERVAL '5' SECOND": "WATERMARK",
}


@pytest.mark.parametrize("element", LEFT_OUT)
def test_what_an_engine_computes_is_left_out_and_named(element: str) -> None:
    statement = only(f"CREATE TABLE t (id INT,\n  {element},\n  {KEY})", Dialect.FLINK)
    assert [field["name"] for field in statement.body["fields"]] == ["id"]
    [warning] = statement.warnings
    assert warning.code is FaultCode.CLAUSE_LEFT_OUT
    assert warning.message.startswith("line 2, column 3: ")
    assert LEFT_OUT[element] in warning.message


@pytest.mark.parametrize(
    "clause",
    ["DISTRIBUTED BY HASH(id) INTO 4 BUCKETS", "DISTRIBUTED INTO 2 BUCKETS", "CLUSTERED BY (id) INTO 3 BUCKETS"],
)
def test_buckets_are_left_out_and_named(clause: str) -> None:
    [warning] = only(f"CREATE TABLE t (id INT, {KEY}) {clause}").warnings
    assert (warning.code, "work" in warning.message) == (FaultCode.CLAUSE_LEFT_OUT, True)


@pytest.mark.parametrize("comment", ["__BLOB_FIELD", "__BLOB_DESCRIPTOR_FIELD; pictures", "__VECTOR_FIELD;3"])
def test_a_comment_that_means_another_type_to_paimon_is_kept_and_warned_of(comment: str) -> None:
    statement = only(f"CREATE TABLE t (a BYTES COMMENT '{comment}', b INT COMMENT '__b')")
    assert statement.body["fields"][0] == {"name": "a", "type": "BYTES", "description": comment}
    [warning] = statement.warnings
    assert (warning.code, "the type that is written" in warning.message) == (FaultCode.CLAUSE_LEFT_OUT, True)


def test_a_statement_of_hive_is_read_as_sparks_and_told_so() -> None:
    handler = "'org.apache.paimon.hive.PaimonStorageHandler'"
    statement = only(f"CREATE TABLE t (id INT, at TIMESTAMP) PARTITIONED BY (dt STRING) STORED BY {handler}")
    assert [field["type"] for field in statement.body["fields"]] == [
        "INT",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "STRING",
    ]
    [warning] = statement.warnings
    assert (warning.code, "TIMESTAMP_NTZ" in warning.fix) == (FaultCode.CLAUSE_LEFT_OUT, True)
    assert warning.message.startswith("line 1, column 66: ")


@pytest.mark.parametrize("declared", ["CHAR", "ROW<a BINARY>", "ARRAY<CHAR NOT NULL>"])
def test_a_type_without_length_warns(declared: str) -> None:
    [warning] = only(f"CREATE TABLE t (a {declared})").warnings
    assert warning.code is FaultCode.LENGTH_OF_ONE


@pytest.mark.parametrize("declared", ["CHAR(1)", "STRING", "ROW<`varchar` CHAR(2)>"])
def test_a_type_with_its_length_does_not(declared: str) -> None:
    assert only(f"CREATE TABLE t (a {declared})").warnings == ()


REFUSED = {
    "CREATE TEMPORARY TABLE t (id INT)": (FaultCode.CLAUSE_NOT_TAKEN, 1, 1, "TEMPORARY"),
    "CREATE OR REPLACE TABLE t (id INT)": (FaultCode.CLAUSE_NOT_TAKEN, 1, 1, "OR REPLACE"),
    "CREATE EXTERNAL TABLE t (id INT)": (FaultCode.CLAUSE_NOT_TAKEN, 1, 1, "EXTERNAL"),
    "CREATE TABLE t (id INT)\nLIKE s": (FaultCode.CLAUSE_NOT_TAKEN, 2, 1, "LIKE"),
    "CREATE TABLE t AS SELECT 1": (FaultCode.CLAUSE_NOT_TAKEN, 1, 16, "AS SELECT"),
    "CREATE TABLE t (id INT) STORED BY 'org.x.Handler'": (FaultCode.FOREIGN_CONNECTOR, 1, 25, "'org.x.Handler'"),
    "CREATE TABLE t (id INT) STORED AS ORC": (FaultCode.CLAUSE_NOT_TAKEN, 1, 25, "STORED"),
    "CREATE TABLE t (id INT) USING delta": (FaultCode.FOREIGN_CONNECTOR, 1, 25, "'delta'"),
    "CREATE TABLE t (id INT) WITH ('a' = 'b',\n 'connector' = 'kafka')": (FaultCode.FOREIGN_CONNECTOR, 2, 2, "'kafka'"),
    "CREATE TABLE t (id INT) LOCATION '/x'": (FaultCode.PATH_NOT_ALLOWED, 1, 25, "path"),
    "CREATE TABLE t (id INT) WITH ('a' = 'b', 'a' = 'c')": (FaultCode.CONTRADICTING_OPTIONS, 1, 42, "'a'"),
    f"CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, {KEY})": (FaultCode.PRIMARY_KEY_TWICE, 1, 50, "twice"),
    "CREATE TABLE t (id STRNG)": (FaultCode.UNKNOWN_TYPE, 1, 20, "'STRNG'"),
    "CREATE TABLE t (id INT,\n  /* x */ n DECIMAL(50))": (FaultCode.OUT_OF_RANGE, 2, 13, "DECIMAL(50)"),
    "CREATE TABLE t (id INT NOT NULL NULL)": (FaultCode.NOT_SQL, 1, 33, "null is said twice"),
    "CREATE TABLE t (id INT COMMENT 'a' COMMENT 'b')": (FaultCode.NOT_SQL, 1, 36, "COMMENT is said twice"),
    "CREATE TABLE t (id INT) COMMENT 'a' COMMENT 'b'": (FaultCode.NOT_SQL, 1, 37, "COMMENT is said twice"),
    "DROP TABLE t": (FaultCode.NOT_SQL, 1, 1, "only CREATE TABLE"),
    "": (FaultCode.NOT_SQL, 1, 1, "no statement"),
    " -- nothing ;\n ;": (FaultCode.NOT_SQL, 1, 1, "no statement"),
    "CREATE TABLE t (id INT": (FaultCode.NOT_SQL, 1, 23, "ends too early"),
    "CREATE TABLE t (id INT) PARTITIONED BY (days(at))": (FaultCode.NOT_SQL, 1, 45, "'('"),
    "CREATE TABLE t (id INT,\n ...)": (FaultCode.NOT_SQL, 2, 2, "left out"),
    "CREATE TABLE t (id INT) WITH (\n'a' = 'b', ...)": (FaultCode.NOT_SQL, 2, 12, "left out"),
    "CREATE TABLE t (id INT) WITH (primary_key = ARRAY['id'])": (FaultCode.CLAUSE_NOT_TAKEN, 1, 50, "Trino"),
    "CREATE TABLE t (id INT, )) x": (FaultCode.NOT_SQL, 1, 26, "')'"),
    "CREATE TABLE t (id INT) WITH ('a' = 'b": (FaultCode.NOT_SQL, 1, 37, '"\'"'),
    "CREATE TABLE t (a " + "ARRAY<" * 70 + "INT" + ">" * 70 + ")": (FaultCode.NESTED_TOO_DEEPLY, 1, 378, "deeply"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_reported_with_its_place_and_a_caret(text: str) -> None:
    code, line, place, reported = REFUSED[text]
    [fault] = faults(text)
    message, shown, caret = fault.message.rsplit("\n", 2)
    assert (fault.pointer, fault.code) == ("/ddl", code)
    assert message.startswith(f"line {line}, column {place}: ")
    assert reported in message
    assert fault.fix
    assert caret.strip() == "^"
    assert text.split("\n")[line - 1][place - 1 : place + 4].startswith(shown[len(caret) - 1 :][:5])


def test_every_statement_tells_its_faults_at_once() -> None:
    text = "CREATE TABLE a (id STRNG, n INTT); DROP TABLE a;\nCREATE TABLE b (id INT) LIKE a; CREATE TABLE c (i INT)"
    codes = [fault.code for fault in faults(text)]
    assert codes == [FaultCode.UNKNOWN_TYPE] * 2 + [FaultCode.NOT_SQL, FaultCode.CLAUSE_NOT_TAKEN]


def test_faults_of_the_schema_are_reported_where_the_statement_has_them() -> None:
    statement = only("CREATE TABLE t (\n  id INT,\n  n INT,\n  PRIMARY KEY (id, m) NOT ENFORCED\n) WITH ('a.b' = 'c')")
    pointers = [
        "/schema/fields/1/type",
        "/schema/primaryKeys/1",
        "/schema/options/a.b",
        "/schema/fields/9",
        "/identifier/object",
    ]
    found = statement.in_source(Violation(pointer, FaultCode.MISSING, "x") for pointer in pointers)
    places = [fault.message.split(":")[0] for fault in found]
    assert places == [
        "line 3, column 5", "line 4, column 20", "line 5, column 9", "line 1, column 1", "line 1, column 14",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code"),
    [("x" * (MOST_CHARACTERS + 1), FaultCode.TOO_LONG), ("x;" * (MOST_STATEMENTS + 1), FaultCode.TOO_MANY)],
)
def test_more_than_is_read_at_a_time_is_refused_unread(text: str, code: FaultCode) -> None:
    assert [(fault.pointer, fault.code) for fault in faults(text)] == [("/ddl", code)]
    assert len(faults("x;" * MOST_STATEMENTS)) == MOST_STATEMENTS


def test_a_long_line_is_shown_around_the_place() -> None:
    [fault] = faults(f"CREATE TABLE t ({', '.join(f'c{number} INT' for number in range(200))}, d STRNG)")
    _, shown, caret = fault.message.rsplit("\n", 2)
    assert len(shown) <= 200
    assert shown[len(caret) - 1 :].startswith("STRNG")


@pytest.mark.parametrize("dialect", Dialect)
def test_a_bracket_that_a_page_of_markdown_escapes_is_a_bracket_outside_quotes(dialect: Dialect) -> None:
    text = "CREATE TABLE t (m MAP\\<INT, ARRAY\\<INT\\>\\> COMMENT '\\<', STRNG)"
    [fault] = faults(text, dialect)
    assert fault.message.startswith("line 1, column 63: ")
    comment = {Dialect.FLINK: "\\<", Dialect.SPARK: "<"}[dialect]
    assert fields(text.replace("STRNG", "n INT"), dialect)[0]["description"] == comment


def test_as_many_brackets_as_may_be_are_read() -> None:
    assert only("CREATE TABLE t (a INT, b AS " + "(" * (DEEPEST - 1) + "1" + ")" * (DEEPEST - 1) + ")").warnings
