"""A real S3 server (moto's), a process of its own, and a line to it that fails in the ways that lines and stores do."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto

from pyarrow import fs

from app.files.layout import Warehouse

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-may-see",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # ends with whoever started it
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """The ``host:port`` of a store that forgets everything when it ends."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def uri_of(bucket: str, endpoint: str, prefix: str = "/house", **parameters: str) -> str:
    """The setting of a warehouse in ``bucket``; one that fails does so soon."""
    given = {
        "region": "us-east-1",
        "endpoint_override": endpoint,
        "scheme": "http",
        "request_timeout": "1",
        "max_attempts": "2",
    }
    return f"s3://{bucket}{prefix}?{'&'.join(f'{name}={value}' for name, value in (given | parameters).items())}"


def new_bucket(endpoint: str) -> str:
    """The name of a bucket that is empty."""
    name = f"kf-{uuid.uuid4().hex[:12]}"
    store = fs.S3FileSystem(region="us-east-1", endpoint_override=endpoint, scheme="http", allow_bucket_creation=True)
    store.create_dir(name)
    return name


def objects_in(warehouse: Warehouse) -> set[str]:
    """The keys of all objects, below the warehouse, but those that only stand for folders."""
    found = warehouse.filesystem.get_file_info(fs.FileSelector(warehouse.path(), recursive=True, allow_not_found=True))
    return {one.path.removeprefix(f"{warehouse.path()}/") for one in found if one.type is fs.FileType.File}


def put(warehouse: Warehouse, path: str, content: bytes) -> None:
    """Write an object behind the service's back."""
    with warehouse.filesystem.open_output_stream(warehouse.path(path)) as stream:
        stream.write(content)


def flip(warehouse: Warehouse, path: str, place: int) -> None:
    """Change one bit of an object."""
    with warehouse.filesystem.open_input_file(warehouse.path(path)) as source:
        content = bytearray(source.read())
    content[place] ^= 1
    put(warehouse, path, bytes(content))


class Fault(Enum):
    """What a line to a store does to the requests that come."""

    SILENCE = auto()  # takes them, and answers nothing
    SLOW_DOWN = auto()  # 503, as S3 answers whoever asks too much
    ERROR = auto()  # 500
    REFUSAL = auto()  # 403, as S3 answers whoever it does not know
    CUT = auto()  # the answer ends in its middle
    LOST_ANSWER = auto()  # the store does what it is asked, and nobody hears of it


_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_REFUSAL = b"<Error><Code>InvalidAccessKeyId</Code><Message>AKIATESTTESTTESTTEST is not known</Message></Error>"
_ANSWERS = {
    Fault.SLOW_DOWN: (b"503 Slow Down", _SLOW_DOWN),
    Fault.ERROR: (b"500 Internal Server Error", b""),
    Fault.REFUSAL: (b"403 Forbidden", _REFUSAL),
}
_HALF = 600  # bytes of an answer that is cut: its headers, and some of the rest


class FaultyLine:
    """Hands on what comes to the store at ``endpoint``, unless ``fault`` says otherwise, of the next ``times`` requests
    whose line begins with ``method``. ``requests`` are the lines of all that came.
    """

    def __init__(self, endpoint: str) -> None:
        self._store = endpoint
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._fault: tuple[Fault, str, int] | None = None
        self._lock = threading.Lock()
        self.requests: list[str] = []
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, fault: Fault, method: str = "", times: int = 10**9) -> None:
        self._fault = (fault, method, times)

    def heal(self) -> None:
        self._fault = None

    @property
    def healed(self) -> bool:
        return self._fault is None

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One request of one connection: the store is told to close it, and so the answer ends where its bytes do."""
        with suppress(OSError), _ended(client):
            head, rest = self._head(client)
            if not head:
                return
            line = head.partition(b"\r\n")[0].decode()
            fault = self._fault_of(line)
            if fault is Fault.SILENCE:
                client.recv(1)  # until it gives up
                return
            if fault in _ANSWERS:
                status, body = _ANSWERS[fault]
                self._drain(client, head, rest)
                reported = (
                    f"\r\nConnection: close\r\nContent-Length: {0 if line.startswith('HEAD') else len(body)}\r\n\r\n"
                )
                client.sendall(b"HTTP/1.1 " + status + reported.encode() + (b"" if line.startswith("HEAD") else body))
                return
            self._hand_on(client, head, rest, fault)

    def _fault_of(self, line: str) -> Fault | None:
        with self._lock:
            self.requests.append(line)
            if self._fault is None or not line.startswith(self._fault[1]):
                return None
            fault, method, times = self._fault
            self._fault = (fault, method, times - 1) if times > 1 else None
            return fault

    def _hand_on(self, client: socket.socket, head: bytes, rest: bytes, fault: Fault | None) -> None:
        host, _, port = self._store.partition(":")
        store = socket.create_connection((host, int(port)))
        with _ended(store):
            store.sendall(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + rest)
            threading.Thread(target=_pump, args=(client, store), daemon=True).start()
            answer = b""
            sent = 0
            while piece := store.recv(65536):
                if fault is None or (not answer and piece.startswith(b"HTTP/1.1 100")):
                    client.sendall(piece)
                    continue
                answer += piece
                if fault is Fault.CUT and sent < _HALF:
                    client.sendall(piece[: _HALF - sent])
                    sent += len(piece)

    @staticmethod
    def _head(client: socket.socket) -> tuple[bytes, bytes]:
        found = b""
        while b"\r\n\r\n" not in found:
            piece = client.recv(65536)
            if not piece:
                return b"", b""
            found += piece
        head, _, rest = found.partition(b"\r\n\r\n")
        return _without(head, b"connection") + b"\r\n\r\n", rest

    @staticmethod
    def _drain(client: socket.socket, head: bytes, rest: bytes) -> None:
        """Take the body, for a client whose connection is reset may not read the answer."""
        length = next((int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:")), 0)
        if b"100-continue" in head.lower():
            return
        while len(rest) < length:
            rest += client.recv(65536)


def _without(head: bytes, name: bytes) -> bytes:
    return b"\r\n".join(one for one in head.split(b"\r\n") if not one.lower().startswith(name + b":"))


@contextmanager
def _ended(one: socket.socket) -> Iterator[None]:
    """Closes it, even while another thread reads from it."""
    try:
        yield
    finally:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
