"""What changed between two OpenAPI documents, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.api.document.document import METHODS

Document = Mapping[str, Any]


def changes(old: Document, new: Document) -> list[str]:
    """Each difference as a sentence, operations first; none where the documents say the same but for examples."""
    operations = _compared("operation", _operations(old), _operations(new), _of_operation)
    kinds = sorted({*old["components"], *new["components"]})
    components = [
        reported
        for kind in kinds
        for reported in _compared(
            f"{kind}:", old["components"].get(kind, {}), new["components"].get(kind, {}), _of_anything
        )
    ]
    rest = _of_anything("the document", *({k: v for k, v in one.items() if k not in _WALKED} for one in (old, new)))
    return [*operations, *components, *rest]


_WALKED = ("paths", "components")
_QUIET = ("example", "examples")


def _operations(document: Document) -> dict[str, Any]:
    return {
        f"{item[method]['operationId']} ({method.upper()} {path})": item[method]
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    }


def _compared(noun: str, old: Document, new: Document, inside: Any) -> Iterator[str]:
    yield from (f"{noun} {name} is gone" for name in old if name not in new)
    yield from (f"{noun} {name} is new" for name in new if name not in old)
    for name in old:
        if name in new:
            yield from inside(f"{noun} {name}", old[name], new[name])


def _of_operation(name: str, old: Document, new: Document) -> Iterator[str]:
    parameters = [{f"{one['in']} {one['name']}": one for one in each.get("parameters", [])} for each in (old, new)]
    yield from _compared(f"{name}: parameter", *parameters, _of_anything)
    yield from _compared(f"{name}: status", old["responses"], new["responses"], _of_anything)
    walked = ("parameters", "responses")
    yield from _of_anything(name, *({k: v for k, v in one.items() if k not in walked} for one in (old, new)))


def _of_anything(name: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for member in [*old, *(one for one in new if one not in old)]:
            if member in _QUIET:
                continue
            if member not in new:
                yield f"{name}: {member} is gone (was {_short(old[member])})"
            elif member not in old:
                yield f"{name}: {member} is new: {_short(new[member])}"
            else:
                yield from _of_anything(f"{name}.{member}", old[member], new[member])
    elif isinstance(old, list) and isinstance(new, list) and all(isinstance(one, str) for one in [*old, *new]):
        yield from (f"{name}: {one!r} is gone" for one in old if one not in new)
        yield from (f"{name}: {one!r} is new" for one in new if one not in old)
    elif old != new:
        yield f"{name} was {_short(old)} and is {_short(new)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
