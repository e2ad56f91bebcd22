"""The pages of docs/reference, made of the tables that the program has: ``make reference`` writes them.

Options and functions are in docs/semantics.md, faults in docs/errors.md, settings in docs/settings.md and metrics in
docs/monitoring.md, with notes of their own beside each entry; tests compare those with the tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from app.api.shared.needs import NEEDS
from app.cli.program import program_for
from app.core.types.datatype import ENTRIES
from app.core.types.entry import Bounds
from app.core.types.kinds import Kind
from app.core.types.parser import parse_type
from app.core.types.times import TIME_DIGITS
from app.files.arrow import arrow_type
from tests.api.openapi import COMMITTED

PAGES = Path(__file__).parents[1] / "docs" / "reference"

# A type as it is declared, and a value as a record may spell it, for each kind.
SPELLED: Final[Mapping[Kind, tuple[str, Any]]] = {
    Kind.BOOLEAN: ("BOOLEAN", True),
    Kind.TINYINT: ("TINYINT", 7),
    Kind.SMALLINT: ("SMALLINT", "7"),
    Kind.INT: ("INT", 7),
    Kind.BIGINT: ("BIGINT", "9007199254740993"),
    Kind.FLOAT: ("FLOAT", 0.5),
    Kind.DOUBLE: ("DOUBLE", "NaN"),
    Kind.DECIMAL: ("DECIMAL(10, 2)", 12.5),
    Kind.CHAR: ("CHAR(3)", "abc"),
    Kind.VARCHAR: ("VARCHAR(20)", "Lyon"),
    Kind.STRING: ("STRING", "Lyon"),
    Kind.BINARY: ("BINARY(2)", "AQI="),
    Kind.VARBINARY: ("VARBINARY(20)", "AQI="),
    Kind.BYTES: ("BYTES", "AQI="),
    Kind.DATE: ("DATE", "2026-03-01"),
    Kind.TIME: ("TIME(3)", "10:05:00.25"),
    Kind.TIMESTAMP: ("TIMESTAMP(3)", "2026-03-01T10:05:00"),
    Kind.TIMESTAMP_LTZ: ("TIMESTAMP_LTZ(3)", "2026-03-01T10:05:00+01:00"),
    Kind.ARRAY: ("ARRAY<INT>", [1, None]),
    Kind.MULTISET: ("MULTISET<STRING>", {"a": 2}),
    Kind.MAP: ("MAP<STRING, INT>", {"a": 1}),
    Kind.ROW: ("ROW<a INT, b STRING>", {"a": 1}),
}


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; a bar inside a cell does not end it."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def line(text: str | None) -> str:
    """``text`` on one line of Markdown, with the code of docstrings as that of Markdown."""
    return " ".join((text or "").replace("``", "`").split()).replace("<", "&lt;")


def code(text: str) -> str:
    """``text`` in backticks, in two where it has some of its own; nothing for no text."""
    marks = "``" if "`" in text else "`"
    return f"{marks}{text}{marks}" if text else ""


def most_of(kind: Kind, bounds: Bounds) -> int | str:
    """Return the most that a new column may declare."""
    if kind is Kind.TIME:
        return TIME_DIGITS
    return bounds.held or bounds.high or "the other number"


def types_page() -> str:
    """Every data type, and one value of it as it is sent and answered."""
    rows = []
    for kind, entry in ENTRIES.items():
        declared, sent = SPELLED[kind]
        data_type = parse_type(declared)
        answered = entry.encode(data_type)(entry.decode(data_type)(sent))
        numbers = [
            f"{name} {one.low} to {most_of(kind, one)}, {one.default} if left out"
            for name, one in entry.parameters.items()
        ]
        key = "yes" if entry.hashed else "no"
        values = (code(json.dumps(sent)), code(json.dumps(answered)))
        held = (code(entry.spark(data_type)), code(str(arrow_type(data_type))))
        rows.append((code(declared), "; ".join(numbers), *values, *held, key))
    head = ("type", "parameters", "JSON in", "JSON out", "Spark's", "Arrow's", "in a key")
    return f"""# Data types

Apache Paimon's types. `NOT NULL` behind one takes null away. How Flink and Spark spell them:
[tables from SQL](../sql.md); what becomes of numbers and texts that do not fit: [faults](../errors.md).
*JSON in* is one spelling that a record may use: a number may come as text, as in `"7"`.

{table(head, rows)}
"""


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command of a program (of Typer's own click) by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def spelled(parameter: Any) -> str:
    """A parameter as it is typed."""
    if parameter.param_type_name == "option":
        return ", ".join([*parameter.opts, *parameter.secondary_opts])
    many = "…" if parameter.nargs == -1 else ""
    return f"{(parameter.name or '').upper()}{many}"


def of_command(path: str, command: Any) -> str:
    """The section of one command."""
    rows = [(code(spelled(param)), line(param.help)) for param in command.params if param.name != "help"]
    return "\n\n".join([f"## `{path}`", line(command.help), *([table(("argument", "is"), rows)] if rows else [])])


def cli_page() -> str:
    """Every command with its arguments, as ``--help`` tells them."""
    program: Any = get_command(program_for([]))
    sections = [of_command(path, command) for path, command in commands(program, "keyfold")]
    intro = (
        "What `--help` says of each. How they are used, and what they exit with: [`keyfold` at a terminal](../cli.md)."
    )
    return "\n\n".join(["# Commands", intro, *sections]) + "\n"


def schema_name(schema: Mapping[str, Any]) -> str:
    """What a schema is called: its component's name, else its type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if schema.get("type") == "array":
        return f"list of {schema_name(schema.get('items', {}))}"
    return " or ".join(schema_name(one) for one in schema.get("anyOf", ())) or str(schema.get("type", "any"))


def bodies(content: Mapping[str, Any]) -> str:
    """The media types of a body, and what is in them."""
    return ", ".join(f"`{media}` ({schema_name(one.get('schema', {}))})" for media, one in content.items())


def of_operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    """The section of one operation."""
    parts = [f"### {operation['operationId']}", f"`{method.upper()} {path}`", line(operation["description"])]
    need = NEEDS[operation["operationId"]]
    if need is None:
        parts.append("Needs no token.")
    else:
        parts.append(f"Role `{need.role.name.lower()}`; the token is for: {need.about.value}.")
    taken = [
        (
            code(parameter["name"]),
            parameter["in"],
            schema_name(parameter["schema"]),
            line(parameter.get("description", "")),
        )
        for parameter in operation.get("parameters", ())
    ]
    if taken:
        parts.append(table(("parameter", "in", "type", "is"), taken))
    if "requestBody" in operation:
        parts.append(f"Body: {bodies(operation['requestBody']['content'])}.")
    answers = operation["responses"]
    reported = [
        (status, line(one["description"]), bodies(one.get("content", {})))
        for status, one in answers.items()
        if status[0] in "23"
    ]
    parts.append(table(("answer", "when", "body"), reported))
    refused = [status for status in answers if status[0] in "45"]
    parts.append(f"Problems: {', '.join(refused)}." if refused else "")
    return "\n\n".join(part for part in parts if part)


def http_page() -> str:
    """Every operation of the OpenAPI document that is committed."""
    document = json.loads(COMMITTED.read_text())
    found = [(path, method, one) for path, methods in document["paths"].items() for method, one in methods.items()]
    intro = """Of the [OpenAPI document](../openapi.json), which has the members of every body as well. What all do
alike: [how the service speaks HTTP](../http.md); what a problem says: [faults](../errors.md)."""
    parts = ["# Operations over HTTP", intro]
    for tag in document["tags"]:
        parts += [f"## {tag['name'].capitalize()}", f"{tag['description']}."]
        parts += [of_operation(*one) for one in found if tag["name"] in one[2]["tags"]]
    return "\n\n".join(parts) + "\n"


def decisions_page() -> str:
    """Every decision, and which later one supersedes it."""
    rows = []
    for path in sorted((PAGES.parent / "decisions").glob("*.md")):
        text = path.read_text()
        title = re.search(r"^# \d+[.:]? (.+)$", text, re.MULTILINE)
        later = re.match(r"Superseded by \[(\d+)\]\((\S+)\)(\.?)", text)
        assert title is not None, path
        superseded = f"{'' if later[3] else 'in part, '}by [{later[1]}](../decisions/{later[2]})" if later else ""
        decided = title[1][0].upper() + title[1][1:]
        rows.append((str(int(path.name[:4])), f"[{decided}](../decisions/{path.name})", superseded))
    intro = "Why Keyfold is as it is. The first line of a superseded decision names the one that replaces it."
    return f"# Decisions\n\n{intro}\n\n{table(('', 'decision', 'superseded'), rows)}\n"


MADE: Final[Mapping[str, Callable[[], str]]] = {
    "types": types_page,
    "cli": cli_page,
    "http": http_page,
    "decisions": decisions_page,
}

if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for name, make in MADE.items():
        (PAGES / f"{name}.md").write_text(make())
