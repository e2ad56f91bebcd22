"""The columns, keys and clauses of one CREATE TABLE, made into Paimon's JSON of a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lark import Token, Tree

from app.core.ddl.source import Source
from app.core.errors import FaultCode, Violation, escape_pointer
from app.core.types.datatype import ENTRIES, DataType, walk_types
from app.core.types.dialects import SPARK_WORDS, unquoted
from app.core.types.kinds import Family, Kind
from app.core.types.parser import TypeSyntaxError, parse_sql_type, type_to_json

Node = Tree[Token]
OURS = "paimon"
_HIVES = "org.apache.paimon.hive.PaimonStorageHandler"
_SIZED = (Kind.CHAR, Kind.BINARY)  # of the others the table itself warns
_WITHOUT_LENGTH = re.compile(rf"\b({'|'.join(_SIZED)})\b(?!\s*\()", re.IGNORECASE)
_TEMPORAL = frozenset(kind for kind in Kind if ENTRIES[kind].family in (Family.DATE, Family.TIME, Family.TIMESTAMP))
# Comments by which a column of Paimon's is of another type than the one that is written.
_DIRECTIVE = re.compile(r"__(?:BLOB|VECTOR)(?:_[A-Z]+)*_FIELD\b")
_LEFT_OUT = "compute it where rows are written or read"
_SAID_ONCE = {
    "not_null": "whether it may be null",
    "nullable": "whether it may be null",
    "comment": "COMMENT",
    "default": "DEFAULT",
    "table_comment": "COMMENT",
    "partitioned": "PARTITIONED BY",
    "using": "USING",
    "stored_by": "STORED BY",
}
REFUSED_MODIFIERS = {
    "temporary": ("TEMPORARY", "create a table: what is not kept has no use here"),
    "external": ("EXTERNAL", "leave the word out: Keyfold keeps the files of its tables"),
    "or_replace": ("OR REPLACE", "drop the table first, or alter it"),
}


class Elements:
    """The declarations of the ``statement`` that begins at character ``base`` of the source, collected from its parse
    tree; comments are blanked. ``places`` has the character of each part in the source, by JSON pointer into
    ``{identifier, schema}``.
    """

    def __init__(self, source: Source, base: int, statement: str, tree: Node) -> None:
        self.path: tuple[str, ...] = ()
        self.if_not_exists = False
        self.fields: list[dict[str, Any]] = []
        self.key: list[str] | None = None
        self.partition: list[str] = []
        self.options: dict[str, str] = {}
        self.comment: str | None = None
        self.places: dict[str, int] = {"": base}
        self.faults: list[Violation] = []
        self.warnings: list[Violation] = []
        self._source = source
        self._base = base
        self._statement = statement
        self._check_once(trees(tree))
        for node in trees(tree):
            self._read(node)

    def _check_once(self, parts: list[Node]) -> None:
        """Add a fault for a clause that occurs twice: otherwise one of them would be ignored silently."""
        seen: set[str] = set()
        for part in parts:
            what = _SAID_ONCE.get(str(part.data))
            if what in seen:
                message = f"{what} is said twice"
                self._fault(part, FaultCode.NOT_SQL, message, "remove one of them")
            elif what is not None:
                seen.add(what)

    def _read(self, node: Node) -> None:
        getattr(self, f"_read_{node.data}")(node)

    def _at(self, node: Node | Token) -> int:
        start = node.start_pos if isinstance(node, Token) else node.meta.start_pos
        return self._base + (start or 0)

    def _fault(self, node: Node | Token, code: FaultCode, message: str, fix: str) -> None:
        self.faults.append(self._source.fault(self._at(node), code, message, fix))

    def _warn(self, node: Node | Token, message: str, fix: str) -> None:
        self.warnings.append(self._source.fault(self._at(node), FaultCode.CLAUSE_LEFT_OUT, message, fix))

    def _name(self, node: Node) -> str:
        [token] = tokens(node)
        return unquoted(token, self._source.dialect) if token.startswith("`") else str(token)

    def _text_of(self, node: Node) -> str:
        [token] = tokens(node)
        return unquoted(token, self._source.dialect)

    def _source_of(self, node: Node) -> str:
        return self._statement[node.meta.start_pos : node.meta.end_pos]

    # Modifiers, name

    def _read_temporary(self, node: Node) -> None:
        word, fix = REFUSED_MODIFIERS[str(node.data)]
        self.faults.append(
            self._source.fault(self._base, FaultCode.CLAUSE_NOT_TAKEN, f"{word} TABLE is not taken", fix)
        )

    _read_external = _read_or_replace = _read_temporary

    def _read_if_not_exists(self, _: Node) -> None:
        self.if_not_exists = True

    def _read_path(self, node: Node) -> None:
        self.path = tuple(self._name(tree) for tree in trees(node))
        self.places["/identifier/object"] = self._at(trees(node)[-1])

    # Columns and keys

    def _read_elements(self, node: Node) -> None:
        for element in trees(node):
            self._read(element)

    def _read_column(self, node: Node) -> None:
        name_node, type_node, *parts = trees(node)
        name = self._name(name_node)
        for part in parts:
            if part.data in ("metadata", "generated"):
                self._warn(node, f"column {name!r} is computed by the engine and left out", _LEFT_OUT)
                return
        column: dict[str, Any] = {"name": name}
        nullable = True
        self._check_once(parts)
        for part in parts:
            if part.data == "comment":
                column["description"] = self._description(part, self._text_of(trees(part)[0]))
            elif part.data == "default":
                column |= self._default(trees(part)[0])
            elif part.data == "key_here":
                self._set_key(part, [name_node])
            else:
                nullable = part.data != "not_null"
        self._add(column, node, type_node, nullable)

    def _description(self, part: Node, text: str) -> str:
        directive = _DIRECTIVE.match(text)
        if directive:
            message = f"{directive[0]} is a comment like others: the column has the type that is written"
            self._warn(part, message, "remove it, if Paimon need not read the statement")
        return text

    def _add(self, column: dict[str, Any], node: Node, type_node: Node, nullable: bool) -> None:
        pointer = f"/schema/fields/{len(self.fields)}"
        self.places |= {pointer: self._at(node), f"{pointer}/type": self._at(type_node)}
        self.fields.append({**column, "type": type_to_json(self._type(type_node).with_nullable(nullable))})

    def _type(self, node: Node) -> DataType:
        text = self._source_of(node)
        try:
            declared = parse_sql_type(text, self._source.dialect)
        except TypeSyntaxError as error:
            self._fault(node, error.code, str(error), error.fix)
            return DataType(Kind.STRING)
        word = _WITHOUT_LENGTH.search(text)
        if word and any(inner.kind in _SIZED and inner.length == 1 for inner in walk_types(declared)):
            message = f"{word[1].upper()} without a length holds one character or byte"
            fix = "write the length, or STRING or BYTES"
            self.warnings.append(self._source.fault(self._at(node), FaultCode.LENGTH_OF_ONE, message, fix))
        return declared

    def _default(self, node: Node) -> dict[str, str]:
        """Return the member ``defaultValue`` that a literal makes; NULL makes none."""
        literal = self._literal(node)
        if literal is None:
            message = "the default is no literal"
            self._fault(node, FaultCode.ILLEGAL_DEFAULT, message, "write a text in quotes, a number, TRUE or FALSE")
            return {}
        if literal == "NULL":
            return {}
        value = unquoted(literal, self._source.dialect) if literal[0] in "'\"" else literal
        # Quotes around the text of a default are none of its value.
        return {"defaultValue": f"'{value}'" if value[:1] == value[-1:] == "'" and len(value) > 1 else value}

    def _literal(self, node: Node) -> str | None:
        inside = node.children
        if len(inside) == 1 and isinstance(inside[0], Tree):
            return "".join(tokens(inside[0])) if inside[0].data == "text" else self._source_of(inside[0])
        if len(inside) == 1:
            word = str(inside[0]).upper()
            return word if word in ("TRUE", "FALSE", "NULL") else None
        last = inside[1]
        word = str(inside[0]).upper()
        temporal = SPARK_WORDS.get(word, word) in _TEMPORAL
        return str(tokens(last)[0]) if temporal and isinstance(last, Tree) and last.data == "text" else None

    def _read_computed(self, node: Node) -> None:
        name = self._name(trees(node)[0])
        self._warn(node, f"column {name!r} is computed by the engine and left out", _LEFT_OUT)

    def _read_watermark(self, node: Node) -> None:
        self._warn(node, "WATERMARK is the engine's own and left out", "declare it where a stream is read")

    def _read_key(self, node: Node) -> None:
        names = [tree for tree in trees(node) if tree.data == "name"]
        constrained = "CONSTRAINT" in self._source_of(node).upper().split()[:1]
        self._set_key(node, names[1:] if constrained else names)

    def _set_key(self, node: Node, names: list[Node]) -> None:
        if self.key is not None:
            fix = "write one PRIMARY KEY (a, b)"
            self._fault(node, FaultCode.PRIMARY_KEY_TWICE, "the primary key is declared twice", fix)
            return
        self.key = [self._name(name) for name in names]
        self.places["/schema/primaryKeys"] = self._at(node)
        self.places |= {f"/schema/primaryKeys/{number}": self._at(tree) for number, tree in enumerate(names)}

    # Clauses

    def _read_table_comment(self, node: Node) -> None:
        self.comment = self._text_of(trees(node)[0])

    def _read_partitioned(self, node: Node) -> None:
        for part in trees(node):
            name, *type_node = trees(part)
            self.places[f"/schema/partitionKeys/{len(self.partition)}"] = self._at(part)
            self.partition.append(self._name(name))
            if type_node:  # Hive's spelling: a column that is declared nowhere else
                self._add({"name": self._name(name)}, part, type_node[0], nullable=True)

    def _read_using(self, node: Node) -> None:
        self._check_provider(node, self._name(trees(node)[0]))

    def _read_stored_by(self, node: Node) -> None:
        """Read Hive's word for USING. Its other words are Spark's, but for one that alone does not show the dialect."""
        named = self._text_of(trees(node)[0])
        self._check_provider(node, OURS if named == _HIVES else named)
        if named == _HIVES:
            message = "types are read as Spark's, whose TIMESTAMP has a time zone; Hive's has none"
            self._warn(node, message, "write TIMESTAMP_NTZ for Hive's TIMESTAMP, and leave the clause out")

    def _check_provider(self, node: Node, provider: str) -> None:
        if provider.lower() != OURS:
            message = f"a table of {provider!r} is none of Keyfold's"
            fix = f"leave it out, or write {OURS}; read the source with the engine and POST its records"
            self._fault(node, FaultCode.FOREIGN_CONNECTOR, message, fix)

    def _read_options(self, node: Node) -> None:
        for option in trees(node):
            key_node, value_node = trees(option)
            key = ".".join(map(self._name, trees(key_node))) if key_node.data == "path" else self._text_of(key_node)
            value = self._source_of(value_node) if value_node.data != "text" else self._text_of(value_node)
            if key == "connector":
                self._check_provider(option, value)
            elif key in self.options:
                message = f"option {key!r} is given twice"
                self._fault(option, FaultCode.CONTRADICTING_OPTIONS, message, "remove one of them")
            else:
                self.places[f"/schema/options/{escape_pointer(key)}"] = self._at(option)
                self.options[key] = value

    def _read_distributed(self, node: Node) -> None:
        self._warn(node, "how Paimon's writers share the work means nothing here and is left out", "remove it")

    def _read_location(self, node: Node) -> None:
        self._fault(
            node, FaultCode.PATH_NOT_ALLOWED, "Keyfold chooses the path of its tables", "remove the clause LOCATION"
        )

    @property
    def body(self) -> Mapping[str, Any]:
        """Paimon's JSON of the schema."""
        made: dict[str, Any] = {"fields": self.fields, "options": self.options, "partitionKeys": self.partition}
        if self.key is not None:
            made["primaryKeys"] = self.key
        if self.comment is not None:
            made["comment"] = self.comment
        return made


def trees(node: Node) -> list[Node]:
    """Return the parts of a node that have parts themselves."""
    return [child for child in node.children if isinstance(child, Tree)]


def tokens(node: Node) -> list[Token]:
    """Return the words of a node."""
    return [child for child in _leaves(node) if isinstance(child, Token)]


def _leaves(node: Node) -> Iterator[Node | Token]:
    for child in node.children:
        if isinstance(child, Tree):
            yield from _leaves(child)
        else:
            yield child
