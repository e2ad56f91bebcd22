"""Bearer tokens of the API, kept as digests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from app.catalog.failures import refusing
from app.catalog.models import tokens
from app.catalog.part import CatalogPart
from app.core.errors import AlreadyExists, ErrorCode, NotFound


@dataclass(frozen=True)
class ApiToken:
    """A bearer token as its operator knows it: by name. Its text is not kept anywhere."""

    name: str
    created_at: datetime


class Tokens(CatalogPart):
    """What the repository knows about bearer tokens."""

    def add_token(self, name: str, digest: str) -> ApiToken:
        """A new token whose text has ``digest``. Raises ``AlreadyExists`` for a name (or a text) in use."""
        token = ApiToken(name, self.now())
        exists = AlreadyExists(
            f"a token {name!r} exists already; choose another name",
            code=ErrorCode.INVALID_REQUEST,
            resource_type="TOKEN",
            resource_name=name,
        )
        with refusing(self.connection, {"pk_tokens": exists, "uq_tokens_digest": exists}):
            self.connection.execute(tokens.insert().values(name=name, digest=digest, created_at=token.created_at))
        return token

    def find_token(self, digest: str) -> str | None:
        """The name of the token whose text has ``digest``, or None if there is none."""
        return self.connection.execute(sa.select(tokens.c.name).where(tokens.c.digest == digest)).scalar_one_or_none()

    def list_tokens(self) -> list[ApiToken]:
        """All tokens in name order."""
        query = sa.select(tokens.c.name, tokens.c.created_at).order_by(tokens.c.name)
        return [ApiToken(row.name, row.created_at) for row in self.connection.execute(query)]

    def revoke_token(self, name: str) -> None:
        """Forgets the token, so that it opens nothing any more. Raises ``NotFound``."""
        if self.connection.execute(tokens.delete().where(tokens.c.name == name)).rowcount == 0:
            raise NotFound(
                f"there is no token {name!r}",
                code=ErrorCode.INVALID_REQUEST,
                resource_type="TOKEN",
                resource_name=name,
            )

    def any_tokens(self) -> bool:
        """Whether the API asks for a token at all."""
        return self.connection.execute(sa.select(tokens.c.name).limit(1)).first() is not None
