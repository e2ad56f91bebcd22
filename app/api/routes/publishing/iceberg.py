"""Iceberg's REST catalog, for reading: published tables by namespace (docs/iceberg.md).

Not in the OpenAPI document: the forms of these requests and answers are those of Iceberg's own document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from fastapi import Query, Response

from app.api.middleware.routing import Router
from app.api.shared.deps import GrantDep, WarehouseDep
from app.api.shared.paging import LARGEST_PAGE, page_size
from app.api.shared.paths import DatabaseName
from app.api.shared.transactions import Reading, TableDep
from app.core.errors import Resource, not_found
from app.http.iceberg_clients import ICEBERG_PATH
from app.services.publishing.iceberg_catalog import list_published, load_table
from app.services.shared.pages import Page, PageRequest
from app.services.tables import databases

router = Router(prefix=ICEBERG_PATH, include_in_schema=False)
_NAMESPACES: Final = "/namespaces"
_NAMESPACE: Final = "/namespaces/{database}"
_TABLES: Final = "/namespaces/{database}/tables"
_TABLE: Final = "/namespaces/{database}/tables/{table}"
_VIEWS: Final = "/namespaces/{database}/views"

PageToken = Annotated[str | None, Query(alias="pageToken")]
Snapshots = Literal["all", "refs"]
PageSize = Annotated[int | None, Query(alias="pageSize")]


class _Listed:
    """A page of names, or all of them if a client does not request pages; an empty token requests the first page."""

    def __init__(self, token: str | None, size: int | None) -> None:
        self._paged = token is not None
        self._request = PageRequest(page_size(size, LARGEST_PAGE), token or None)
        self.next_token: str | None = None

    def names(self, page: Callable[[PageRequest], Page[str]]) -> list[str]:
        """Return the names of what ``page`` lists."""
        listed = page(self._request)
        names = [*listed.items]
        while not self._paged and listed.next_token is not None:
            listed = page(PageRequest(LARGEST_PAGE, listed.next_token))
            names += listed.items
        self.next_token = listed.next_token
        return names


@router.get("/config", operation_id="getIcebergConfig")
async def get_config(warehouse: str | None = None) -> dict[str, Any]:  # noqa: ARG001  # clients send it; there is one
    """Return no settings. There is no list of endpoints, so that clients try to write and get a refusal that says how
    to write here.
    """
    return {"defaults": {}, "overrides": {}}


@router.get(_NAMESPACES, operation_id="listIcebergNamespaces")
def list_namespaces(
    repository: Reading, grant: GrantDep, parent: str = "", token: PageToken = None, size: PageSize = None
) -> dict[str, Any]:
    """List the databases, each a namespace of one level; namespaces are not nested."""
    shown = grant.scope.shown_databases if not parent else ()
    listed = _Listed(token, size)
    names = listed.names(lambda request: databases.list_databases(repository, request, among=shown))
    return {"namespaces": [[name] for name in names], "next-page-token": listed.next_token}


@router.get(_NAMESPACE, operation_id="getIcebergNamespace")
def get_namespace(database: DatabaseName, repository: Reading) -> dict[str, Any]:
    """Return a database."""
    return {"namespace": [databases.get_database(repository, database).name], "properties": {}}


@router.get(_TABLES, operation_id="listIcebergTables")
def list_tables(
    database: DatabaseName, repository: Reading, grant: GrantDep, token: PageToken = None, size: PageSize = None
) -> dict[str, Any]:
    """List the published tables."""
    shown = grant.scope.shown_tables(database)
    listed = _Listed(token, size)
    names = listed.names(lambda request: list_published(repository, database, request, shown))
    identifiers = [{"namespace": [database], "name": name} for name in names]
    return {"identifiers": identifiers, "next-page-token": listed.next_token}


@router.get(_TABLE, operation_id="loadIcebergTable")
def load(table: TableDep, repository: Reading, warehouse: WarehouseDep, snapshots: Snapshots = "all") -> dict[str, Any]:
    """Return the metadata of a table; with ``snapshots=refs`` only that of its newest snapshot."""
    loaded = load_table(repository, warehouse, table, all_snapshots=snapshots != "refs")
    return {"metadata-location": loaded.location, "metadata": loaded.metadata, "config": {}}


@router.get(_VIEWS, operation_id="listIcebergViews")
def list_views(
    database: DatabaseName,
    repository: Reading,
    token: PageToken = None,  # noqa: ARG001  # clients send both, and there is nothing to page
    size: PageSize = None,  # noqa: ARG001
) -> dict[str, Any]:
    """Return no views: Trino and others list them with the tables."""
    databases.get_database(repository, database)
    return {"identifiers": [], "next-page-token": None}


@router.get(f"{_VIEWS}/{{view}}", operation_id="loadIcebergView")
def load_view(database: DatabaseName, view: str) -> None:
    """Raise ``NotFound``: Trino looks for a view of each name, and for a table only if there is none."""
    name = f"{database}.{view}"
    raise not_found(Resource.TABLE, name, f"view {name!r} does not exist: Keyfold has tables only")


@router.post(f"{_TABLE}/metrics", operation_id="reportIcebergMetrics", status_code=204)
def report_metrics(table: TableDep) -> Response:  # noqa: ARG001  # 404 where there is none
    """Accept the metrics of a client's scan, and discard them."""
    return Response(status_code=204)
