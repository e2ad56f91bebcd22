"""Tokens of an identity provider: what lets their bearers in, and every way in which one is forged."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.core.access import ClaimRule, Role, TokenScope
from app.core.errors import FaultCode, Forbidden, KeyfoldError, Unauthorized, Unavailable
from app.services.access.identities import Identities, Login
from tests.services.access.provider import AUDIENCE, Provider, providing
from tests.services.clocks import Seconds

RULES = (
    ClaimRule(Role.ADMIN, TokenScope.parse(["*"]), "groups", "owners"),
    ClaimRule(Role.WRITE, TokenScope.parse(["shop.*"]), "realm_access.roles", "loader"),
    ClaimRule(Role.READ, TokenScope.parse(["shop.orders"]), "email", "ada@example.org"),
)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing() as opened:
        yield opened


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def identities(provider: Provider, seconds: Seconds) -> Identities:
    return Identities(provider.issuer, AUDIENCE, RULES, clock=seconds)


def code_of(error: KeyfoldError) -> FaultCode:
    return error.violations[0].code


GRANTED: list[tuple[dict[str, Any], Role, tuple[str, ...]]] = [
    ({"groups": ["staff", "owners"], "email": "ada@example.org"}, Role.ADMIN, ("*",)),
    ({"realm_access": {"roles": ["loader"]}}, Role.WRITE, ("shop.*",)),
    ({"realm_access.roles": ["loader"]}, Role.WRITE, ("shop.*",)),
    ({"email": "ada@example.org"}, Role.READ, ("shop.orders",)),
]


def test_the_first_rule_that_the_claims_meet_says_what_a_bearer_may_do(
    provider: Provider, identities: Identities
) -> None:
    for claims, role, patterns in GRANTED:
        grant = identities.check(provider.token(**claims))
        assert (grant.name, grant.role, grant.scope.patterns) == ("oidc:ada", role, patterns), claims


OF_NO_RULE: list[dict[str, Any]] = [
    {},
    {"groups": "owner"},
    {"groups": ["Owners"]},
    {"groups": {"owners": True}},
    {"realm_access": ["loader"]},
]


def test_a_valid_token_that_meets_no_rule_may_do_nothing(provider: Provider, identities: Identities) -> None:
    for claims in OF_NO_RULE:
        with pytest.raises(Forbidden, match="KEYFOLD_OIDC_GRANTS"):
            pytest.fail(f"{claims}: {identities.check(provider.token(**claims))}")


def test_a_rule_without_a_claim_is_for_every_valid_token(provider: Provider) -> None:
    everyone = Identities(provider.issuer, AUDIENCE, [ClaimRule(Role.READ, TokenScope.parse(["*"]))])
    assert everyone.check(provider.token()).role is Role.READ
    with pytest.raises(Unauthorized):
        everyone.check(provider.token(aud="others"))


WRONG_CLAIMS: list[dict[str, Any]] = [
    {"aud": "others"},
    {"aud": None},
    {"iss": "https://elsewhere.example"},
    {"iss": None},
    {"sub": None},
    {"sub": ""},
    {"sub": 7},
    {"sub": "x" * 256},
    {"sub": "ada\nadmin"},
    {"exp": None},
    {"nbf": 4_102_444_800},
]


def test_a_token_with_wrong_claims_is_refused(provider: Provider, identities: Identities) -> None:
    for claims in WRONG_CLAIMS:
        with pytest.raises(Unauthorized) as refused:
            pytest.fail(f"{claims}: {identities.check(jwt_of(provider, {'groups': ['owners'], **claims}))}")
        assert code_of(refused.value) is FaultCode.UNKNOWN_TOKEN, claims


def jwt_of(provider: Provider, claims: dict[str, Any]) -> str:
    """A token that PyJWT would not make: it looks at sub when it encodes."""
    usual = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600}
    reported = {one: value for one, value in (usual | claims).items() if value is not None}
    algorithm, private = provider.keys["first"]
    payload = json.dumps(reported).encode()
    return jwt.PyJWS().encode(payload, private, algorithm=algorithm, headers={"kid": "first", "typ": "JWT"})


def test_an_expired_token_says_so(provider: Provider, identities: Identities) -> None:
    with pytest.raises(Unauthorized, match="expired") as refused:
        identities.check(provider.token(groups=["owners"], exp=int(time.time()) - 60))
    assert code_of(refused.value) is FaultCode.EXPIRED_TOKEN


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def forgeries(provider: Provider) -> Iterator[tuple[str, str]]:
    header, _, signature = provider.token(groups=["owners"]).split(".")
    reported = {
        "iss": provider.issuer,
        "aud": AUDIENCE,
        "sub": "eve",
        "exp": int(time.time()) + 600,
        "groups": ["owners"],
    }
    yield "changed", f"{header}.{part(reported)}.{signature}"
    yield "unsigned", f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(reported)}."
    yield "unsigned by a known key", f"{part({'alg': 'none', 'kid': 'first'})}.{part(reported)}."
    public = provider.keys["first"][1].public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    unsigned = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(reported)}"
    made = hmac.digest(pem, unsigned.encode(), "sha256")
    yield "signed with the public key", f"{unsigned}.{base64.urlsafe_b64encode(made).decode().rstrip('=')}"
    other = Provider("eve")
    other.issuer = provider.issuer
    yield "another key of the same name", other.token(groups=["owners"], sub="eve")
    yield (
        "a key in the header",
        jwt.encode(
            reported, other.keys["first"][1], algorithm="RS256", headers={"jwk": other.answer("/keys")["keys"][0]}
        ),
    )
    yield (
        "a place of keys in the header",
        jwt.encode(
            reported,
            other.keys["first"][1],
            algorithm="RS256",
            headers={"kid": "first", "jku": "http://127.0.0.1:1/keys"},
        ),
    )
    yield "no JSON", "a.b.c"
    yield "empty", ".."
    yield "endless", f"{header}.{'A' * 100_000}.{signature}"
    yield (
        "critical",
        jwt.encode(
            reported, provider.keys["first"][1], "RS256", headers={"kid": "first", "crit": ["b64"], "b64": False}
        ),
    )


def test_a_forged_token_lets_nobody_in(provider: Provider, identities: Identities) -> None:
    for what, token in forgeries(provider):
        with pytest.raises(Unauthorized):
            pytest.fail(f"{what}: {identities.check(token)}")
        assert identities.recall(token) is None, what


def test_a_key_that_is_new_is_requested_once_and_what_nobody_has_not_again_and_again(
    provider: Provider, identities: Identities, seconds: Seconds
) -> None:
    identities.check(provider.token(groups=["owners"]))
    provider.rotate("second", "ES256")
    seconds.time += 20
    assert identities.check(provider.token(groups=["owners"])).role is Role.ADMIN
    assert identities.check(provider.token("first", groups=["owners"], sub="bob")).name == "oidc:bob"
    before = len(provider.asked)
    for _ in range(20):
        with pytest.raises(Unauthorized):
            identities.check(jwt.encode({"sub": "x"}, provider.keys["first"][1], "RS256", headers={"kid": "none"}))
    assert len(provider.asked) == before
    seconds.time += 20
    with pytest.raises(Unauthorized):
        identities.check(jwt.encode({"sub": "x"}, provider.keys["first"][1], "RS256", headers={"kid": "none"}))
    assert len(provider.asked) == before + 1


def test_a_verified_token_is_remembered_for_a_minute_and_never_beyond_its_end(provider: Provider) -> None:
    seconds, clock = Seconds(), Seconds()
    clock.time = time.time()
    identities = Identities(provider.issuer, AUDIENCE, RULES, clock=seconds, now=clock)
    token = provider.token(groups=["owners"], exp=int(clock.time) + 30)
    assert identities.recall(token) is None
    grant = identities.check(token)
    assert identities.recall(token) == grant
    assert 29 <= identities.lasts(token, 100.0) <= 30
    clock.time += 31
    assert identities.recall(token) is None
    longer = provider.token(groups=["owners"])
    assert identities.check(longer) == identities.recall(longer)
    seconds.time += 61
    assert identities.recall(longer) is None


def test_a_provider_that_does_not_answer_is_said_and_known_keys_go_on(
    provider: Provider, identities: Identities, seconds: Seconds
) -> None:
    provider.answers = False
    with pytest.raises(Unavailable, match="cannot be reached"):
        identities.check(provider.token(groups=["owners"]))
    asked = len(provider.asked)
    for _ in range(20):
        with pytest.raises(Unavailable, match="a moment ago"):
            identities.check(provider.token(groups=["owners"]))
    assert len(provider.asked) == asked
    seconds.time += 6
    provider.answers = True
    identities.check(provider.token(groups=["owners"]))
    provider.answers = False
    assert identities.check(provider.token(groups=["owners"], sub="bob")).name == "oidc:bob"
    seconds.time += 20
    provider.rotate("second")
    with pytest.raises(Unavailable, match="cannot be reached"):
        identities.check(provider.token(groups=["owners"]))


def test_what_answers_for_another_issuer_is_not_believed(provider: Provider) -> None:
    elsewhere = Identities(f"{provider.issuer}/realm", AUDIENCE, RULES)
    with pytest.raises(Unavailable, match="another issuer"):
        elsewhere.check(provider.token(groups=["owners"]))


@pytest.mark.parametrize(
    ("secret", "shown"), [(None, None), ("a b:c%", f"Basic {base64.b64encode(b'keyfold:a+b%3Ac%25').decode()}")]
)
def test_a_client_with_a_secret_shows_it_where_codes_are_exchanged(
    provider: Provider, secret: str | None, shown: str | None
) -> None:
    login = Login.new()
    provider.logins["c1"] = {"groups": ["owners"], "nonce": login.nonce}
    identities = Identities(provider.issuer, AUDIENCE, RULES, secret)
    assert identities.signed_in("c1", "http://127.0.0.1/back", login).role is Role.ADMIN
    assert (provider.sent[-1].get("authorization"), provider.sent[-1]["code_verifier"]) == (shown, login.verifier)
    assert login.verifier not in repr(login)
