"""The certificate that is shown: from files, again when they change, and never half of one."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization as pem

from app.core.errors import Unavailable
from app.server.certificates import Certificate

AUTHORITY = trustme.CA()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    chain, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write(chain, key, AUTHORITY.issue_cert("localhost"))
    return chain, key


def write(chain: Path, key: Path, issued: trustme.LeafCert) -> None:
    chain.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())


def test_a_pair_of_files_is_a_certificate(files: tuple[Path, Path]) -> None:
    certificate = Certificate(*files)
    assert certificate.context() is certificate.context()


def test_files_that_are_no_pair_are_refused_by_name(files: tuple[Path, Path], tmp_path: Path) -> None:
    chain, key = files
    other = tmp_path / "other.pem"
    other.write_bytes(AUTHORITY.issue_cert("localhost").private_key_pem.bytes())
    for pair in ((chain, other), (chain, chain), (key, key), (tmp_path / "none", key), (chain, tmp_path / "none")):
        with pytest.raises(Unavailable, match="KEYFOLD_TLS_CERT") as refused:
            Certificate(*pair).context()
        assert str(pair[1]) in refused.value.message


def test_a_key_with_a_passphrase_is_refused_without_a_prompt(files: tuple[Path, Path]) -> None:
    chain, key = files
    plain = pem.load_pem_private_key(key.read_bytes(), None)
    hidden = pem.BestAvailableEncryption(b"open sesame")
    key.write_bytes(plain.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, hidden))
    with pytest.raises(Unavailable, match="passphrase"):
        Certificate(chain, key).context()


def test_files_that_do_not_belong_together_yet_leave_the_certificate_as_it_was(
    files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    chain, key = files
    certificate = Certificate(chain, key)
    certificate.context()
    certificate.renew()
    assert caplog.messages == []
    issued = AUTHORITY.issue_cert("localhost")
    chain.write_bytes(issued.cert_chain_pems[0].bytes())
    certificate.renew()
    certificate.renew()
    assert ["is not replaced" in message for message in caplog.messages] == [True]
    key.unlink()
    certificate.renew()
    key.write_bytes(issued.private_key_pem.bytes())
    os.utime(key, ns=(1, 1))
    certificate.renew()
    assert "is used from now on" in caplog.messages[-1]
