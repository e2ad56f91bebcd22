"""Settings that contradict each other or name nothing are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.cli.client.settings import ClientSettings
from app.cli.settings import warn_of_unknown
from app.settings import Settings

CERT = Path("cert.pem")


@pytest.mark.parametrize("given", [{"tls_cert": CERT}, {"tls_key": CERT}])
def test_a_certificate_and_its_key_come_together(given: dict[str, Path]) -> None:
    with pytest.raises(ValidationError, match="both KEYFOLD_TLS_CERT and KEYFOLD_TLS_KEY"):
        Settings(**given)
    assert Settings(tls_cert=CERT, tls_key=CERT).tls_key == CERT
    assert Settings().tls_key is None


@pytest.mark.parametrize("text", ["*", "proxy.example", "10.0.0.0/33", "10.0.0.1;10.0.0.2", "10.0.0.1/8"])
def test_a_trusted_proxy_is_an_address_or_a_network(text: str) -> None:
    with pytest.raises(ValidationError, match=r"trusted_proxies"):
        Settings(trusted_proxies=text)


def test_trusted_proxies_are_a_list_and_make_tokens_needed() -> None:
    chosen = Settings(trusted_proxies=" 10.0.0.0/8 , ::1,")
    assert chosen.trusted_proxies == "10.0.0.0/8,::1"
    assert chosen.asks_for_tokens is True
    assert Settings().asks_for_tokens is False
    assert Settings(host="0.0.0.0").asks_for_tokens is True  # noqa: S104  # nothing listens there


def test_a_variable_that_is_no_setting_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_unknown({"KEYFOLD_PROCESES": "2", "KEYFOLD_POLL_SECONDS": "1", "KEYFOLD_PORT": "1", "KEYFOLD_DATA": "x"})
    assert [record.args for record in caplog.records] == [("KEYFOLD_POLL_SECONDS",), ("KEYFOLD_PROCESES",)]


def test_at_most_forty_settings_are_not_of_an_identity_provider() -> None:
    of_service = [name for name in Settings.model_fields if not name.startswith("oidc_")]
    assert len(of_service) + len(ClientSettings.model_fields) <= 40


PROVIDER = {"oidc_issuer": "https://login.example", "oidc_audience": "keyfold"}
READ_ALL = {"role": "read", "on": ["*"]}


def test_an_identity_provider_is_named_whole_and_closes_the_service() -> None:
    chosen = Settings(**PROVIDER, oidc_grants=[READ_ALL, {**READ_ALL, "claim": "groups", "value": "staff"}])
    assert chosen.asks_for_tokens is True
    assert [(grant.rule.claim, grant.rule.value) for grant in chosen.oidc_grants] == [(None, ""), ("groups", "staff")]
    for missing in ("oidc_issuer", "oidc_audience"):
        with pytest.raises(ValidationError, match="or none of them"):
            Settings(**{one: value for one, value in PROVIDER.items() if one != missing}, oidc_grants=[READ_ALL])
    with pytest.raises(ValidationError, match="or none of them"):
        Settings(**PROVIDER)


@pytest.mark.parametrize(
    "grant",
    [
        {"role": "owner", "on": ["*"]},
        {"role": "read", "on": []},
        {"role": "read", "on": ["shop"]},
        {**READ_ALL, "claim": "groups"},
        {**READ_ALL, "value": "staff"},
        {**READ_ALL, "claims": "groups"},
    ],
    ids=str,
)
def test_an_entry_that_grants_nothing_or_too_much_in_silence_is_refused(grant: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="oidc_grants"):
        Settings(**PROVIDER, oidc_grants=[grant])


@pytest.mark.parametrize("issuer", ["http://login.example", "login.example", "ftp://127.0.0.1", "https://", ""])
def test_an_issuer_whose_keys_others_could_answer_is_refused(issuer: str) -> None:
    with pytest.raises(ValidationError, match="oidc_issuer"):
        Settings(oidc_issuer=issuer, oidc_audience="keyfold", oidc_grants=[READ_ALL])
    assert Settings(**{**PROVIDER, "oidc_issuer": "http://127.0.0.1:8000"}, oidc_grants=[READ_ALL]).oidc_issuer
