"""Options that Keyfold carries out refuse a misspelt neighbour; Paimon's own are taken with a warning."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.core.table.options.entries import TABLE_OPTIONS
from app.core.table.options.paimon import OWN_FAMILIES, PAIMONS_OWN
from app.core.table.schema import TableSchema
from tests.api.conftest import TABLES, Create, new_table

OWN = [key for key in TABLE_OPTIONS if key.startswith(OWN_FAMILIES)]
CREATE_AND_ALTER = ("create", "alter")


def set_options(shop: TestClient, way: str, options: dict[str, str], *, only_check: bool = False) -> Any:
    """Create or alter ``wide`` so that it has ``options``."""
    check = {"validateOnly": "true"} if only_check else {}
    if way == "create":
        return shop.post(TABLES, json=new_table(options=options), params=check)
    shop.post(TABLES, json=new_table())
    changes = [{"action": "setOption", "key": key, "value": value} for key, value in options.items()]
    return shop.post(f"{TABLES}/wide", json={"changes": changes}, params=check)


def test_every_family_has_an_option_that_is_carried_out_or_paimons() -> None:
    assert all(any(key.startswith(family) for key in (*OWN, *PAIMONS_OWN)) for family in OWN_FAMILIES)
    assert not PAIMONS_OWN & set(TABLE_OPTIONS)


@pytest.mark.parametrize("way", CREATE_AND_ALTER)
def test_a_misspelled_option_is_refused_with_the_nearest_name(shop: TestClient, way: str) -> None:
    misspelt = {key: f"{key[:-2]}{key[-1]}{key[-2]}" for key in OWN}
    answer = set_options(shop, way, dict.fromkeys(misspelt.values(), "1"))
    assert answer.status_code == 400, answer.text
    reported = {fault["fix"]: fault["code"] for fault in answer.json()["errors"]}
    assert reported == {f"did you mean {key}?": "unknown_option" for key in misspelt}
    pointers = {fault["pointer"] for fault in answer.json()["errors"]}
    places = {f"/changes/{number}/value" for number in range(len(OWN))}
    assert pointers == (places if way == "alter" else {f"/schema/options/{key}" for key in misspelt.values()})


@pytest.mark.parametrize("way", CREATE_AND_ALTER)
def test_what_is_near_nothing_is_refused_too(shop: TestClient, way: str) -> None:
    answer = set_options(shop, way, {"snapshot.x": "1"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "unknown_option")


@pytest.mark.parametrize("way", CREATE_AND_ALTER)
@pytest.mark.parametrize("only_check", [False, True])
def test_paimons_own_options_are_taken_and_warned_of_at_once(shop: TestClient, way: str, only_check: bool) -> None:
    options = dict.fromkeys([*sorted(PAIMONS_OWN), "tag.callback.com.example.Tag.param"], "1")
    answer = set_options(shop, way, options, only_check=only_check)
    assert answer.status_code == 200, answer.text
    warned = {warning["pointer"] for warning in answer.json()["warnings"] if warning["code"] == "option_without_effect"}
    assert warned == {f"/options/{key}" for key in options}
    if not only_check:
        assert answer.json()["warnings"] == shop.get(f"{TABLES}/wide/rules").json()["warnings"]
        assert answer.json()["schema"]["options"] == options
        assert "warnings" not in shop.get(f"{TABLES}/wide").json()


@pytest.mark.parametrize("way", CREATE_AND_ALTER)
def test_a_table_without_surprises_has_no_warnings(shop: TestClient, way: str) -> None:
    assert set_options(shop, way, {"snapshot.num-retained.min": "3"}).json()["warnings"] == []


def test_a_table_that_has_a_misspelled_option_already_goes_on(shop: TestClient, create: Create) -> None:
    created = create()
    parts: Parts = shop.app.state.parts  # type: ignore[attr-defined]  # the application under the client
    with parts.database.transaction() as repository:  # as an older version accepted it
        schema = TableSchema.from_json({**created["schema"], "options": {"snapshot.num-retained.mix": "3"}})
        repository.tables.alter(created["id"], 0, schema)
    assert shop.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}]}).status_code == 202
    assert shop.get(f"{TABLES}/wide/rows/1?consistency=latest").status_code == 200
    comment = {"changes": [{"action": "updateComment", "comment": "still mine"}]}
    assert shop.post(f"{TABLES}/wide", json=comment).status_code == 200
