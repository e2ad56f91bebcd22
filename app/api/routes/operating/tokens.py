"""``/v1/tokens``: API tokens made, listed and revoked with the role admin; ``keyfold token`` does the same."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response
from pydantic import Field

from app.api.document.payloads import Names
from app.api.middleware.audit import NotesDep
from app.api.middleware.routing import Router
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken, OwnBody
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paging import WantedPage
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.transactions import Reading, Writing
from app.core.access import Role
from app.services.access.tokens import Wish, audit_members, list_tokens, make_token

router = Router(route_class=JsonRoute, prefix="/v1/tokens", tags=["tokens"], responses=PROBLEM_RESPONSES)


class NewToken(OwnBody):
    """A token to create. The role is required."""

    name: str
    role: Role
    on: Names = Field(description="its scope: `*`, `shop.*` for a database, `shop.orders` for a table")
    expires: str | None = Field(None, description="`90d`, `12h`, or a time: `2027-01-31T18:00:00Z`; never without")
    webhook: bool = Field(False, description="a secret that signs requests, as in Standard Webhooks (`whsec_…`)")


class Token(Answer):
    """A token by its name; times are milliseconds since 1970-01-01 UTC. ``lastUsedAt`` is a minute or so late."""

    name: str
    role: Role
    on: Annotated[list[str], From(lambda token: list(token.scope.patterns))]
    created_at: EpochMillis
    expires_at: EpochMillis | None
    last_used_at: EpochMillis | None


class MadeToken(Token):
    """A new token, and its text (``token``), which is returned only once."""

    token: str


class TokenList(Answer):
    """A page of the tokens in name order, expired ones too; ``nextPageToken`` is null on the last page."""

    tokens: Annotated[list[Token], From("items")]
    next_page_token: NextPageToken


@router.post("", operation_id="createToken", responses=problems(409))
def create_token(body: NewToken, repository: Writing, response: Response, notes: NotesDep) -> MadeToken:
    """Create a token. After the first one, every request needs a token. The name of an expired token is free."""
    made = make_token(repository, Wish(body.name, body.role, body.on, body.expires, body.webhook))
    notes.add(**audit_members(made.token))
    response.headers["Cache-Control"] = "no-store"
    return MadeToken.from_value(made.token, token=made.secret)


@router.get("", operation_id="listTokens")
def get_tokens(repository: Reading, wanted: WantedPage) -> TokenList:
    """List the tokens, without their texts, which are not kept."""
    return TokenList.from_value(list_tokens(repository, wanted))


@router.delete("/{name}", operation_id="revokeToken", response_class=Response)
def revoke_token(name: str, repository: Writing, notes: NotesDep) -> Response:
    """Revoke a token: it is refused here at once, and on other machines within two seconds."""
    notes.add(name=name)
    repository.tokens.revoke(name)
    return Response()
