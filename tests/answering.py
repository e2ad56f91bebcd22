"""A server that answers bytes, in place of a service: what no service of ours would answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def answering(answers: list[bytes]) -> Iterator[str]:
    """The URL of something that gives these answers, one a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for reported in answers:
                with listener.accept()[0] as connection:
                    connection.recv(65_536)
                    connection.sendall(reported)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(30)


def reported(status: str, body: str, *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers])
    return f"{head}\r\n\r\n{body}".encode()
