"""The role and scope that each operation requires of a token (docs/decisions/0025).

``middleware.permits`` checks them before the body is read. The service does not start if a route has no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from app.core.access import Grant, Role


class About(Enum):
    """The scope that an operation requires: a database, a table, or neither."""

    NOTHING = "no database: any token will do, and lists show what it is for"
    SERVICE = "everything"
    PART = "the database of the path, or a table in it"
    DATABASE = "the database of the path, whole"
    TABLE = "the table of the path"
    NAMED = "what the body or an id names: the route itself asks, once it has read it"


@dataclass(frozen=True)
class Need:
    """The requirements of an operation.

    With the query parameter ``trial`` it stores nothing and requires only the role ``read``; the route checks ``role``
    before it stores anything. ``audited``: its success is a line of the audit log.
    """

    role: Role
    about: About = About.TABLE
    audited: bool = False
    trial: bytes | None = None

    def check(self, grant: Grant, names: Mapping[str, str], query: bytes) -> None:
        """Raise ``Forbidden`` unless ``grant`` meets the requirements for the database and the table in ``names``."""
        tries = self.trial is not None and self.trial in query.split(b"&")
        _CHECKS[self.about](grant, Role.READ if tries else self.role, names)


def _of_database(grant: Grant, role: Role, names: Mapping[str, str]) -> None:
    grant.check_database(role, names["database"])


def _of_part(grant: Grant, role: Role, names: Mapping[str, str]) -> None:
    grant.check_part(role, names["database"])


def _of_table(grant: Grant, role: Role, names: Mapping[str, str]) -> None:
    grant.check_table(role, names["database"], names["table"])


_CHECKS = {
    About.NOTHING: lambda grant, role, _: grant.check_role(role),
    About.NAMED: lambda grant, role, _: grant.check_role(role),
    About.SERVICE: lambda grant, role, _: grant.check_service(role),
    About.PART: _of_part,
    About.DATABASE: _of_database,
    About.TABLE: _of_table,
}
_TRIAL: Final = b"validateOnly=true"
_READ: Final = Need(Role.READ)
_WRITE: Final = Need(Role.WRITE)

NEEDS: Final[Mapping[str, Need | None]] = {
    # Open paths need no token. If credentials are in the body, the route checks them.
    **dict.fromkeys(("getHealth", "getReadiness"), None),
    **dict.fromkeys(("signIn", "renewSignIn", "getAccessToken", "getIcebergToken"), None),
    "getConfig": Need(Role.READ, About.NOTHING),
    **dict.fromkeys(("getIcebergConfig", "listIcebergNamespaces"), Need(Role.READ, About.NOTHING)),
    **dict.fromkeys(
        ("getIcebergNamespace", "listIcebergTables", "listIcebergViews", "loadIcebergView"), Need(Role.READ, About.PART)
    ),
    **dict.fromkeys(("loadIcebergTable", "reportIcebergMetrics"), _READ),
    "getMetrics": Need(Role.READ, About.SERVICE),  # they name tables
    "listDatabases": Need(Role.READ, About.NOTHING),
    "createDatabase": Need(Role.ADMIN, About.NAMED, audited=True),
    "getDatabase": Need(Role.READ, About.PART),
    "alterDatabase": Need(Role.ADMIN, About.DATABASE, audited=True),
    "dropDatabase": Need(Role.ADMIN, About.DATABASE, audited=True),
    "listTables": Need(Role.READ, About.PART),
    "listTableDetails": Need(Role.READ, About.PART),
    "createTable": Need(Role.ADMIN, About.PART, audited=True, trial=_TRIAL),
    "createTablesFromDdl": Need(Role.ADMIN, About.PART, audited=True, trial=_TRIAL),
    **dict.fromkeys(("validateTable", "validateDdl"), Need(Role.READ, About.PART)),
    "postDatabaseBatches": Need(Role.WRITE, About.PART),  # the route checks each table that the body names
    "getTableById": Need(Role.READ, About.NAMED),
    "renameTable": Need(Role.ADMIN, About.NAMED, audited=True),
    "alterTable": Need(Role.ADMIN, audited=True, trial=_TRIAL),
    "dropTable": Need(Role.ADMIN, audited=True),
    "rollbackTable": Need(Role.ADMIN, audited=True),
    "dropPartitions": Need(Role.ADMIN, audited=True),
    "forgetRows": Need(Role.ADMIN, audited=True),
    "createTag": Need(Role.WRITE, audited=True),
    "deleteTag": Need(Role.ADMIN, audited=True),  # its snapshot expires then, and its rows with it
    **dict.fromkeys(("postBatch", "putRow", "putRowByPath", "patchRow", "patchRowByPath"), _WRITE),
    **dict.fromkeys(("deleteRow", "deleteRowByPath", "postMerge", "cancelMerge", "postCompaction"), _WRITE),
    **dict.fromkeys(
        ("deleteBatch", "retryBatch", "retrySetAsideEvents", "withdrawSetAsideEvent"), Need(Role.WRITE, audited=True)
    ),
    **dict.fromkeys(("getTable", "getSchema", "getRules", "getTableStats", "listFiles"), _READ),
    **dict.fromkeys(("listPartitions", "getChangelog"), _READ),
    **dict.fromkeys(("listSetAsideEvents", "getSetAsideEvent"), _READ),
    **dict.fromkeys(("listDamage", "getTableDdl", "getTableDelta", "getTableIceberg"), _READ),
    **dict.fromkeys(("validateChanges", "getTableDocument"), _READ),
    **dict.fromkeys(("getRow", "getRowByPath", "batchGetRows", "scanRows", "countRows", "simulateRows"), _READ),
    **dict.fromkeys(("explainRow", "explainRowByPath"), _READ),
    **dict.fromkeys(("listBatches", "getBatch", "listMerges", "getMerge", "listTags", "getTag"), _READ),
    **dict.fromkeys(("listForgettings", "getForgetting"), _READ),
    **dict.fromkeys(("listSnapshots", "getVersionSnapshot", "getTableSnapshot"), _READ),
    **dict.fromkeys(("getMergeChanges", "getSnapshotChanges", "getLateness"), _READ),
    "simulateMerge": Need(Role.READ, About.NOTHING),
    "createToken": Need(Role.ADMIN, About.SERVICE, audited=True),
    "listTokens": Need(Role.ADMIN, About.SERVICE),
    "revokeToken": Need(Role.ADMIN, About.SERVICE, audited=True),
}
