"""Data types read and written: Paimon's SQL text and the JSON of its REST catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from app.core.errors import FaultCode
from app.core.hints import cut, nearest
from app.core.types.datatype import ENTRIES, DataType, Field, walk_types
from app.core.types.dialects import SPARK_WORDS, TEXT, Dialect, unquoted
from app.core.types.entry import MAX_LENGTH, Bounds
from app.core.types.kinds import Family, Kind


class TypeSyntaxError(ValueError):
    """A type that cannot be read or held; ``fix`` says what to write instead."""

    def __init__(self, message: str, fix: str, code: FaultCode = FaultCode.UNKNOWN_TYPE) -> None:
        super().__init__(message)
        self.fix = fix
        self.code = code


REFUSED: Mapping[str, str] = {
    "VARIANT": "store the document as STRING",
    "BLOB": "use BYTES",
    "VECTOR": "use ARRAY<FLOAT>",
    "GEOMETRY": "store well-known binary as BYTES",
    "GEOGRAPHY": "store well-known binary as BYTES",
    "INTERVAL": "use BIGINT with a unit of your choice",
}

# LALR(1) with a contextual lexer. What decides between a constructed type and a word lies in the lexer: ROW, MAP, … are
# read as such only where a type may stand and their bracket follows, so they remain good names of fields.
_GRAMMAR = r"""
start: type
type: base nullability?
nullability: "NOT"i "NULL"i -> not_null | "NULL"i -> null
base: _ARRAY "<" type ">"                                                -> array
    | _MULTISET "<" type ">"                                             -> multiset
    | _MAP "<" type "," type ">"                                         -> map
    | _ROW "<" (field ("," field)*)? ">"                                 -> row
    | _ROW "(" (field ("," field)*)? ")"                                 -> row
    | _STRUCT "<" (struct_field ("," struct_field)*)? ">"                -> struct
    | _DOUBLE_PRECISION                                                  -> double_precision
    | _TIMESTAMP parameters? "WITH"i "LOCAL"i "TIME"i "ZONE"i            -> timestamp_ltz
    | _TIMESTAMP parameters?                                             -> timestamp
    | _TIMESTAMP parameters? "WITHOUT"i "TIME"i "ZONE"i                  -> timestamp_ntz
    | _TIMESTAMP parameters? "WITH"i "TIME"i "ZONE"i                     -> timestamp_tz
    | WORD parameters?                                                   -> scalar
parameters: "(" NUMBER ("," NUMBER)* ")"
field: name type TEXT?
struct_field: name ":"? type ("COMMENT"i TEXT)?                          -> field
name: WORD -> plain_name | (BACKQUOTED | DOUBLE_QUOTED) -> quoted_name
_ARRAY.2: /ARRAY(?=\s*<)/i
_MULTISET.2: /MULTISET(?=\s*<)/i
_MAP.2: /MAP(?=\s*<)/i
_ROW.2: /ROW(?=\s*[<(])/i
_STRUCT.2: /STRUCT(?=\s*<)/i
_DOUBLE_PRECISION.2: /DOUBLE\s*PRECISION/i
_TIMESTAMP.2: /TIMESTAMP(?![A-Za-z_0-9])/i
BACKQUOTED: /`(?:[^`]|``)[^`]*(?:``[^`]*)*`/
DOUBLE_QUOTED: /"(?:[^"]|"")[^"]*(?:""[^"]*)*"/
WORD: /[A-Za-z_][A-Za-z_0-9]*/
NUMBER: /[0-9]{1,10}/
%ignore /\s+/
"""
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'")

_ALIASES = {"INTEGER": Kind.INT, "DEC": Kind.DECIMAL, "NUMERIC": Kind.DECIMAL, "BOOL": Kind.BOOLEAN}
_NAMES: Mapping[str, Kind] = {**{kind.value: kind for kind in Kind}, **_ALIASES}


def _check_bounds(kind: Kind, value: int, bounds: Bounds) -> None:
    if bounds.high is not None and not bounds.low <= value <= bounds.high:
        raise TypeSyntaxError(
            f"{kind}({value}) is out of range",
            f"write {kind}({bounds.low}) to {kind}({bounds.high})",
            FaultCode.OUT_OF_RANGE,
        )
    if bounds.held is not None and value > bounds.held:
        message = f"{kind}({value}) needs nanoseconds, and Spark holds microseconds"
        raise TypeSyntaxError(message, f"use {kind}({bounds.held})", FaultCode.UNSUPPORTED_TYPE)


def _declared(kind: Kind, numbers: list[int]) -> DataType:
    """Return a type that holds no others, with the numbers of its declaration."""
    parameters, unbounded = ENTRIES[kind].parameters, ENTRIES[kind].unbounded
    if numbers and not parameters:
        raise TypeSyntaxError(f"type {kind} takes no parameters", f"write {kind}")
    if len(numbers) > len(parameters):
        raise TypeSyntaxError(f"type {kind} takes fewer parameters", "remove the extra ones")
    if unbounded is not None and numbers == [MAX_LENGTH]:
        return DataType(unbounded)
    given: dict[str, Any] = {name: bounds.default for name, bounds in parameters.items()} | dict(
        zip(parameters, numbers, strict=False)
    )
    for name, bounds in parameters.items():
        _check_bounds(kind, given[name], bounds)
    declared = replace(DataType(kind), **given)
    if (declared.scale or 0) > (declared.precision or 0):
        raise TypeSyntaxError(
            f"{declared.base_sql}: the scale exceeds the precision", "use a scale from 0 to the precision"
        )
    return declared


def _scalar(name: str, numbers: list[int], dialect: Dialect) -> DataType:
    word = name.upper()
    if dialect is Dialect.SPARK and word in SPARK_WORDS:
        return _of_spark(word, numbers)
    if word in REFUSED:
        raise TypeSyntaxError(f"type {word} cannot be held in a Spark table", REFUSED[word], FaultCode.UNSUPPORTED_TYPE)
    kind = _NAMES.get(word)
    if kind is None:
        near = nearest(word, _NAMES)
        hint = f"did you mean {near}?" if near else f"known types: {', '.join(Kind)}"
        raise TypeSyntaxError(f"unknown type {cut(name)!r}", hint)
    if ENTRIES[kind].inside:
        raise TypeSyntaxError(f"{kind} needs the types inside it", f"write {kind}<…>")
    return _declared(kind, numbers)


def _of_spark(word: str, numbers: list[int]) -> DataType:
    """Return the type that Spark means by a word that Flink does not know, or understands otherwise."""
    if numbers:
        raise TypeSyntaxError(f"Spark's type {word} takes no parameters", f"write {word}, or the table in Flink's SQL")
    return _declared(SPARK_WORDS[word], [])


@v_args(inline=True)
class _TypeBuilder(Transformer[Token, DataType]):
    """Turns the parse tree into a ``DataType``; nested ROW fields are numbered by ``renumber`` afterwards."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect

    def start(self, data_type: DataType) -> DataType:
        return data_type

    def type(self, base: DataType, nullable: bool = True) -> DataType:
        return base.with_nullable(nullable)

    def not_null(self) -> bool:
        return False

    def null(self) -> bool:
        return True

    def array(self, element: DataType) -> DataType:
        return DataType(Kind.ARRAY, element=element)

    def multiset(self, element: DataType) -> DataType:
        return DataType(Kind.MULTISET, element=element)

    def map(self, key: DataType, element: DataType) -> DataType:
        return DataType(Kind.MAP, key=key, element=element)

    def row(self, *fields: Field) -> DataType:
        return DataType(Kind.ROW, fields=tuple(replace(f, id=i) for i, f in enumerate(fields)))

    def struct(self, *fields: Field) -> DataType:
        if self._dialect is not Dialect.SPARK:
            raise TypeSyntaxError("STRUCT is a type of Spark's SQL", "write ROW<name TYPE, …>")
        return self.row(*fields)

    def field(self, name: str, data_type: DataType, comment: Token | None = None) -> Field:
        return Field(0, name, data_type, None if comment is None else unquoted(comment, self._dialect))

    def plain_name(self, token: Token) -> str:
        return str(token)

    def quoted_name(self, token: Token) -> str:
        quote_character = token[0]
        return str(token)[1:-1].replace(quote_character * 2, quote_character)

    def double_precision(self) -> DataType:
        return DataType(Kind.DOUBLE)

    def timestamp(self, parameters: list[int] | None = None) -> DataType:
        return _scalar(Kind.TIMESTAMP, parameters or [], self._dialect)

    def timestamp_ntz(self, parameters: list[int] | None = None) -> DataType:
        return _declared(Kind.TIMESTAMP, parameters or [])

    def timestamp_ltz(self, parameters: list[int] | None = None) -> DataType:
        return _declared(Kind.TIMESTAMP_LTZ, parameters or [])

    def timestamp_tz(self, *_parameters: list[int]) -> DataType:
        message = "TIMESTAMP WITH TIME ZONE cannot be held in a Spark table"
        raise TypeSyntaxError(message, "use TIMESTAMP(6) WITH LOCAL TIME ZONE", FaultCode.UNSUPPORTED_TYPE)

    def scalar(self, word: Token, parameters: list[int] | None = None) -> DataType:
        return _scalar(str(word), parameters or [], self._dialect)

    def parameters(self, *numbers: Token) -> list[int]:
        return [int(n) for n in numbers]


@lru_cache(maxsize=len(Dialect))
def _parser(dialect: Dialect) -> Lark:
    # With the builder given here a type is made as it is read: no tree, no recursion.
    grammar = f"{_GRAMMAR}TEXT: /{TEXT[dialect]}/s\n"
    return Lark(grammar, parser="lalr", maybe_placeholders=False, transformer=_TypeBuilder(dialect))


MAX_DEPTH = 50


def _too_deep() -> TypeSyntaxError:
    return TypeSyntaxError("the type is nested too deeply", f"nest at most {MAX_DEPTH} levels")


def _check_text(text: str) -> None:
    """Refuse names that the grammar has no rule for, and types that are nested too deeply."""
    first = re.match(r"\s*([A-Za-z]+)", text)
    kind = first[1].upper() if first else ""
    if kind in REFUSED:
        raise TypeSyntaxError(f"type {kind} cannot be held in a Spark table", REFUSED[kind], FaultCode.UNSUPPORTED_TYPE)
    depth = 0
    for character in _QUOTED.sub("", text):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if depth > MAX_DEPTH:
            raise _too_deep()


def _parse_text(text: str, dialect: Dialect) -> DataType:
    return _parse_short(text, dialect) if len(text) <= _SHORT else _parse_new(text, dialect)


_SHORT = 64  # characters: few types are longer, and most tables have the same ones again and again


@lru_cache(maxsize=4096)
def _parse_short(text: str, dialect: Dialect) -> DataType:
    return _parse_new(text, dialect)


def _parse_new(text: str, dialect: Dialect) -> DataType:
    _check_text(text)
    try:
        return cast("DataType", _parser(dialect).parse(text))
    except UnexpectedInput as error:
        message = f"cannot read the type {cut(text)!r}{_place(text, error)}"
        raise TypeSyntaxError(message, "write it as in Paimon's SQL, e.g. DECIMAL(10, 2)") from error


def _place(text: str, error: UnexpectedInput) -> str:
    """Return where reading stopped, for a message."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return ": it ends too early" if text.strip() else ""
    at = error.pos_in_stream or 0
    return f" from character {at + 1} on: {text[at : at + 20]!r}"


def parse_type(raw: object, depth: int = 0) -> DataType:
    """Return the type that ``raw`` declares: SQL text (``"INT NOT NULL"``, ``"ARRAY<INT>"``) or Paimon's JSON for
    nested types.

    Unknown members of a JSON type are ignored. Raise ``TypeSyntaxError``.
    """
    if depth > MAX_DEPTH:
        raise _too_deep()
    if isinstance(raw, str):
        data_type = _parse_text(raw, Dialect.FLINK)
    elif isinstance(raw, Mapping):
        data_type = _parse_object(raw, depth + 1)
    else:
        raise TypeSyntaxError("a column needs a type", 'add "type": "STRING", for instance', FaultCode.MISSING)
    _check_nested(data_type)
    return data_type


def parse_sql_type(text: str, dialect: Dialect) -> DataType:
    """Return the type that ``text`` declares in a dialect of SQL. Raise ``TypeSyntaxError``."""
    data_type = _parse_text(text, dialect)
    _check_nested(data_type)
    return data_type


def _parse_object(raw: Mapping[str, Any], depth: int) -> DataType:
    text = raw.get("type")
    words = text.upper().split() if isinstance(text, str) else []
    kind = _NAMES.get(words[0]) if words else None
    if kind is None or not ENTRIES[kind].inside:
        return parse_type(text, depth)
    if words[1:] not in ([], ["NULL"], ["NOT", "NULL"]):
        raise TypeSyntaxError(f"cannot read the type {cut(text or '')!r}", f"write {kind} or {kind} NOT NULL")
    inside: dict[str, Any] = {
        attribute: _parse_fields(raw.get(member), depth)
        if attribute == "fields"
        else parse_type(raw.get(member), depth)
        for member, attribute in ENTRIES[kind].inside.items()
    }
    return DataType(kind, words[1:] != ["NOT", "NULL"], **inside)


def _parse_fields(raw: object, depth: int) -> tuple[Field, ...]:
    if not isinstance(raw, list):
        raise TypeSyntaxError("a ROW type needs fields", 'add "fields": [{"name": …, "type": …}]')
    return tuple(_parse_field(field, depth) for field in raw)


def _described(raw: Mapping[str, Any]) -> str | None:
    text = raw.get("description")
    if text is not None and not is_text(text):
        raise TypeSyntaxError("the description of a ROW field is not text", "send a string", FaultCode.NOT_TEXT)
    return text


def is_text(value: object) -> bool:
    """Return whether a JSON value is text that UTF-8 can write: no half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parse_field(raw: object, depth: int) -> Field:
    if not isinstance(raw, Mapping) or not is_text(raw.get("name")) or not raw["name"]:
        raise TypeSyntaxError("a ROW field needs a name", 'write {"name": …, "type": …}')
    number = raw.get("id")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**30:
        number = -1  # given later, when all ids of the schema are known
    return Field(number, raw["name"], parse_type(raw.get("type"), depth), _described(raw))


def _check_nested(data_type: DataType) -> None:
    names = [field.name for field in data_type.fields]
    if len(set(names)) != len(names):
        raise TypeSyntaxError("a ROW type names a field twice", "rename one of them", FaultCode.DUPLICATE_COLUMN)
    if data_type.family is Family.ROW and not names:
        raise TypeSyntaxError("a ROW type needs at least one field", "add a field")
    keyed = data_type.map_types[0] if data_type.family is Family.MAP else None
    if keyed is not None and any(inner.family is Family.MAP for inner in walk_types(keyed)):
        raise TypeSyntaxError(
            f"{keyed.base_sql} cannot be a map key in Spark",
            "use a scalar, ARRAY or ROW key",
            FaultCode.UNSUPPORTED_TYPE,
        )
    for inner in data_type.nested:
        _check_nested(inner)


def type_to_json(data_type: DataType) -> str | dict[str, Any]:
    """Return Paimon's JSON of the type: text for scalars, an object for ARRAY, MULTISET, MAP and ROW."""
    if not data_type.entry.inside:
        return data_type.sql
    inside = {name: _part_to_json(getattr(data_type, part)) for name, part in data_type.entry.inside.items()}
    return {"type": data_type.kind.value + ("" if data_type.nullable else " NOT NULL"), **inside}


def _part_to_json(part: DataType | tuple[Field, ...]) -> Any:
    return type_to_json(part) if isinstance(part, DataType) else [_field_to_json(field) for field in part]


def _field_to_json(field: Field) -> dict[str, Any]:
    body: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        body["description"] = field.description
    return body
