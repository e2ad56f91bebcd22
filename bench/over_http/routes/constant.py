"""A constant answer as long as a row: what FastAPI costs by itself."""

from __future__ import annotations

from fastapi import FastAPI, Response

from bench.over_http.routes.serving import serve

BODY = b'{"id":1234567,"customer":123456789,"text":"' + b"." * 290 + b'"}'


async def constant() -> Response:
    """The same bytes for everyone."""
    return Response(BODY, media_type="application/json")


if __name__ == "__main__":
    bare = FastAPI()
    bare.get("/constant")(constant)
    serve(bare)
