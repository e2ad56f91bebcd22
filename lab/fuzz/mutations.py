"""Inputs made of others by seed, for a machine without atheris."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

LONGEST = 2**16
_ODD = (0, 1, 0x7F, 0x80, 0xFF, *b"\"\\{}[],:.-+eE0 \n\r'`()<>%_")


def _flip(body: bytearray, random: Random, _: Sequence[bytes]) -> None:
    body[random.randrange(len(body))] ^= 1 << random.randrange(8)


def _put(body: bytearray, random: Random, _: Sequence[bytes]) -> None:
    body[random.randrange(len(body))] = random.choice(_ODD)


def _insert(body: bytearray, random: Random, words: Sequence[bytes]) -> None:
    place = random.randrange(len(body) + 1)
    body[place:place] = random.choice(words) if words and random.random() < 0.7 else bytes([random.choice(_ODD)])


def _replace(body: bytearray, random: Random, words: Sequence[bytes]) -> None:
    place = random.randrange(len(body))
    word = random.choice(words) if words else bytes(random.randrange(9))
    body[place : place + random.randrange(len(word) + 1)] = word


def _remove(body: bytearray, random: Random, _: Sequence[bytes]) -> None:
    place = random.randrange(len(body))
    del body[place : place + random.randrange(1, 20)]


def _repeat(body: bytearray, random: Random, _: Sequence[bytes]) -> None:
    place = random.randrange(len(body))
    body[place:place] = bytes(body[place : place + random.randrange(1, 40)]) * random.choice((1, 1, 3, 200))


def _cut(body: bytearray, random: Random, _: Sequence[bytes]) -> None:
    del body[random.randrange(len(body)) :]


def _graft(body: bytearray, random: Random, words: Sequence[bytes]) -> None:
    """Another value somewhere in a line of JSON, which stays JSON."""
    lines = bytes(body).split(b"\n")
    place = random.randrange(len(lines))
    start = min((at for at in (lines[place].find(b"{"), lines[place].find(b"[")) if at >= 0), default=len(lines[place]))
    try:
        value = json.loads(lines[place][start:])
    except (ValueError, RecursionError):
        return
    holder: Any = [value]
    inside, name = random.choice([*_places(holder)])
    spoken = [json.loads(word) for word in words if word.startswith(b'"')]
    inside[name] = random.choice((*_VALUES, *spoken[:: max(1, len(spoken) // 9)], inside[name], [inside[name]]))
    if isinstance(inside, dict) and random.random() < 0.2:
        inside[random.choice((*spoken, "odd", ""))] = inside.pop(name)
    lines[place] = lines[place][:start] + json.dumps(holder[0], separators=(",", ":")).encode()
    body[:] = b"\n".join(lines)


_VALUES: Sequence[Any] = (
    *(None, True, False, 0, -1, 2**31, 2**63, -(2**63) - 1, 10**40, 0.5, 1e308, "", "a", "\x00", "\ud800", "é", "1"),
    *([], {}, [[]], [None], {"a": []}, [{}], "x" * 300, [0] * 40),
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (holder, name or index) in a JSON value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in [*members]:
        yield value, name
        yield from _places(inner)


_STEPS: Sequence[Callable[[bytearray, Random, Sequence[bytes]], None]] = (
    *(_flip, _flip, _put, _put, _insert, _insert, _replace, _remove, _repeat, _cut),
    *(_graft,) * 6,
)


def grafted(body: bytes, words: Sequence[bytes], random: Random) -> bytes:
    """The input with other values in its JSON; the same where it has none."""
    changed = bytearray(body)
    for _ in range(random.choice((1, 1, 2, 4))):
        _graft(changed, random, words)
    return bytes(changed[:LONGEST])


def mutated(seeds: Sequence[bytes], words: Sequence[bytes], count: int, random: Random) -> Iterator[bytes]:
    """``count`` inputs, each of one seed, or of two, with a few changes."""
    for _ in range(count):
        body = bytearray(random.choice(seeds))
        if random.random() < 0.1:
            other = random.choice(seeds)
            body[random.randrange(len(body) + 1) :] = other[random.randrange(len(other) + 1) :]
        for _ in range(random.choice((1, 1, 2, 3, 8))):
            if body:
                random.choice(_STEPS)(body, random, words)
        yield bytes(body[:LONGEST])
