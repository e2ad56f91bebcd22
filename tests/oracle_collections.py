"""Steps of the functions over texts, arrays and maps, restated: each is (accumulated, value, add)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

Step = Callable[[Any, Any, bool], Any]
Options = Mapping[str, str]


def _scaled(value: Any, data_type: str) -> Any:
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-int(data_type.rstrip(")").split(",")[1])), rounding=ROUND_HALF_UP)
    return value


def product(options: Options, data_type: str) -> Step:
    def step(acc: Any, value: Any, add: bool) -> Any:
        if value is None:
            return acc
        if acc is None:
            return value if add else None
        if add:
            return _scaled(acc * value, data_type)
        if isinstance(acc, int):
            return int(Decimal(acc) / Decimal(value))
        return _scaled(acc / value, data_type)

    return step


def listagg(options: Options, data_type: str) -> Step:
    delimiter = options.get("list-agg-delimiter", ",")

    def step(acc: Any, value: Any, add: bool) -> Any:
        if value is None or not value.strip():
            return acc
        if acc is None:
            return value
        if options.get("distinct") != "true":
            return f"{acc}{delimiter}{value}"
        for token in value.split(delimiter):
            if token.strip() and token not in acc.split(delimiter):
                acc = f"{acc}{delimiter}{token}"
        return acc

    return step


def collect(options: Options, data_type: str) -> Step:
    def step(acc: Any, value: Any, add: bool) -> Any:
        if value is None:
            return acc
        if not add:
            if acc is None:
                return None
            kept = list(acc)
            for item in value:
                if item in kept:
                    kept.remove(item)
            return kept
        joined = [*(acc or []), *value]
        if options.get("distinct") != "true":
            return joined
        return [item for place, item in enumerate(joined) if item not in joined[:place]]

    return step


def merge_map(options: Options, data_type: str) -> Step:
    def step(acc: Any, value: Any, add: bool) -> Any:
        if value is None:
            return acc
        if not add:
            return None if acc is None else [(k, v) for k, v in acc if k not in dict(value)]
        return list({**dict(acc or []), **dict(value)}.items())

    return step


def keytime(options: Options, data_type: str) -> Step:
    time = options.get("ts-field") or "ts"

    def step(acc: Any, value: Any, add: bool) -> Any:
        if value is None:
            return acc
        entries = dict(acc or [])
        for key, row in value:
            if row is None:
                entries.pop(key, None)
            elif row[time] is not None and (key not in entries or row[time] > entries[key][time]):
                entries[key] = row
        return list(entries.items())

    return step


def _nested(options: Options) -> tuple[list[str], str, list[str], float]:
    keys = [name.strip() for name in options.get("nested-key", "").split(",") if name.strip()]
    sequence = [name for name in options.get("nested-sequence-field", "").split(",") if name]
    return keys, options.get("nested-key-null-strategy", "merge"), sequence, float(options.get("count-limit", "inf"))


def nested_update(options: Options, data_type: str) -> Step:
    keys, strategy, sequence, limit = _nested(options)

    def key(item: Any) -> list[Any]:
        return [item[name] for name in keys]

    def order(item: Any) -> list[Any]:
        return [(item[name] is not None, item[name] or 0) for name in sequence]

    def step(acc: Any, value: Any, add: bool) -> Any:
        if value is None or (not add and acc is None):
            return acc
        items = [i for i in value if i is not None and not (strategy == "ignore" and keys and None in key(i))]
        kept = list(acc or [])
        if not keys:
            if not add:
                return [item for item in kept if item not in items]
            return kept + items[: int(max(0, min(limit, 10**6) - len(kept)))]
        for item in items:
            places = [place for place, old in enumerate(kept) if key(old) == key(item)]
            if not add:
                kept = [old for old in kept if key(old) != key(item)]
            elif places and order(item) >= order(kept[places[0]]):
                kept[places[0]] = item
            elif not places and len(kept) < limit:
                kept.append(item)
        return kept

    return step


def nested_partial_update(options: Options, data_type: str) -> Step:
    keys, strategy, _, _ = _nested(options)

    def step(acc: Any, value: Any, add: bool) -> Any:
        if value is None:
            return acc
        kept = [dict(item) for item in acc or []]
        for item in value:
            if item is None or (strategy == "ignore" and any(item[name] is None for name in keys)):
                continue
            old = next((one for one in kept if all(one[name] == item[name] for name in keys)), None)
            if old is None:
                kept.append(dict(item))
            else:
                old.update({name: v for name, v in item.items() if v is not None})
        return kept

    return step


COLLECTIONS: Mapping[str, Callable[[Options, str], Step]] = {
    "product": product,
    "listagg": listagg,
    "collect": collect,
    "merge_map": merge_map,
    "merge_map_with_keytime": keytime,
    "nested_update": nested_update,
    "nested_partial_update": nested_partial_update,
}
