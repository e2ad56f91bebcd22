"""Serving an application as ``keyfold serve`` serves its own: uvloop, httptools, one process, no access log."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI


def serve(app: FastAPI) -> None:
    """Listen on a free port, print the URL, serve until SIGTERM."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])
