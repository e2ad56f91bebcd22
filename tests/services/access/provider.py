"""An identity provider on this machine: what OpenID Connect has others read, and tokens of every kind."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "keyfold"


class Provider:
    """Its keys by name, the one that signs last; ``asked`` are the paths that were asked for."""

    def __init__(self, owner: str = "provider") -> None:
        self.keys: dict[str, tuple[str, Any]] = {}
        self.asked: list[str] = []
        self.issuer = ""
        self.answers = True
        self.logins: dict[str, dict[str, Any]] = {}  # what somebody signed in with, by the code that is given for it
        self.sent: list[dict[str, str]] = []  # what came to the token endpoint
        self._owner = owner
        self.rotate("first")

    def rotate(self, name: str, algorithm: str = "RS256") -> None:
        """Sign with another key from now on; those before stay valid."""
        self.keys[name] = algorithm, _key(self._owner, name, algorithm)

    def token(self, key: str | None = None, **claims: Any) -> str:
        """A token with these claims beside the usual ones; a claim that is None is left out."""
        name = key or [*self.keys][-1]
        algorithm, private = self.keys[name]
        usual = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600}
        reported = {one: value for one, value in (usual | claims).items() if value is not None}
        return jwt.encode(reported, private, algorithm=algorithm, headers={"kid": name})

    def exchange(self, body: str, authorization: str | None) -> dict[str, str] | None:
        """The token for a code, which counts once; None for none."""
        sent = dict(parse_qsl(body))
        self.sent.append(sent | ({"authorization": authorization} if authorization else {}))
        claims = self.logins.pop(sent.get("code", ""), None)
        return None if claims is None else {"id_token": self.token(**claims), "token_type": "Bearer"}

    def answer(self, path: str) -> Any:
        """What is at a path."""
        self.asked.append(path)
        if path.endswith("/openid-configuration"):
            places = {"jwks_uri": "keys", "authorization_endpoint": "sign-in", "token_endpoint": "token"}
            return {"issuer": self.issuer, **{one: f"{self.issuer}/{path}" for one, path in places.items()}}
        return {
            "keys": [
                {**_public(algorithm, key), "kid": name, "use": "sig"} for name, (algorithm, key) in self.keys.items()
            ]
        }


@cache  # it takes a second to find primes
def _key(_owner: str, _name: str, algorithm: str) -> Any:
    return rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())


def _public(algorithm: str, key: Any) -> dict[str, Any]:
    known = RSAAlgorithm if algorithm == "RS256" else ECAlgorithm
    reported: dict[str, Any] = json.loads(known.to_jwk(key.public_key()))  # type: ignore[attr-defined]
    return reported | {"alg": algorithm}


@contextmanager
def providing() -> Iterator[Provider]:
    """A provider that answers on a free port."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say(200 if provider.answers else 503, provider.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            given = provider.exchange(body, self.headers["Authorization"])
            self.say(200 if given else 400, given or {"error": "invalid_grant"})

        def say(self, status: int, reported: object) -> None:
            body = json.dumps(reported).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        try:
            yield provider
        finally:
            server.shutdown()
