"""A form with a file in it (multipart/form-data, RFC 7578), read in parts: the file may be larger than the memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.core.errors import Invalid
from app.storage.staging.spool import Content, Room, Spool, read_until

if TYPE_CHECKING:  # it is only there for type checkers
    from python_multipart.multipart import MultipartCallbacks

_STEP: Final = 2**20
_MOST_PARTS: Final = 50
_MOST_FIELD_BYTES: Final = 2**16


@dataclass(frozen=True)
class SentFile:
    """A file as it was sent: its name and content."""

    name: str
    content: Content


@dataclass(frozen=True)
class SentForm:
    """The fields of a form, and its file; None if none was chosen."""

    fields: Mapping[str, str] = field(default_factory=dict)
    file: SentFile | None = None


def read_form(body: Content, content_type: str, room: Room) -> SentForm:
    """Return the form in ``body``; a large file is written to the disk again. Raise ``Invalid``, and ``Unavailable``
    if the disk has no room.
    """
    media_type, options = parse_options_header(content_type)
    if media_type != b"multipart/form-data" or not options.get(b"boundary"):
        raise Invalid("the form has no file in it; go back and send it again")
    with ExitStack() as held:
        parts = _Parts(room, held)
        try:
            parser = MultipartParser(options[b"boundary"], parts.callbacks())
            for start in range(0, len(body), _STEP):
                parser.write(body[start : start + _STEP])
                parts.spill()
                read_until(body, start)
            parser.finalize()
        except FormParserError as error:
            raise Invalid("the form cannot be read; go back and send it again") from error
        return parts.form()


class _Parts:
    """The form as the parser reports it, part by part."""

    def __init__(self, room: Room, held: ExitStack) -> None:
        self._room, self._held = room, held
        self._fields: dict[str, str] = {}
        self._file: SentFile | None = None
        self._header, self._header_value = b"", b""
        self._name = ""
        self._file_name: str | None = None
        self._spool = Spool(room)
        self._count = 0

    def callbacks(self) -> MultipartCallbacks:
        """Return the callbacks of the multipart parser."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._add_field,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_part_data": self._data,
            "on_part_end": self._end,
        }

    def spill(self) -> None:
        """Write the content to the disk once it is too large for the memory."""
        if self._spool.due:
            self._spool.spill()

    def form(self) -> SentForm:
        """Return the form that was parsed."""
        return SentForm(self._fields, self._file)

    def _begin(self) -> None:
        self._count += 1
        if self._count > _MOST_PARTS:
            raise Invalid(f"the form has more than {_MOST_PARTS} parts")
        self._header, self._header_value, self._name, self._file_name = b"", b"", "", None
        self._spool = Spool(self._room)
        self._held.callback(self._spool.close)

    def _add_field(self, content: bytes, start: int, end: int) -> None:
        self._header += content[start:end]

    def _add_value(self, content: bytes, start: int, end: int) -> None:
        self._header_value += content[start:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(self._header_value)
            self._name = options.get(b"name", b"").decode("utf-8", "replace")
            if b"filename" in options:
                self._file_name = options[b"filename"].decode("utf-8", "replace")
        self._header, self._header_value = b"", b""

    def _data(self, content: bytes, start: int, end: int) -> None:
        self._spool.add(content[start:end])
        if self._file_name is None and self._spool.size > _MOST_FIELD_BYTES:
            raise Invalid(f"the field {self._name[:50]!r} of the form has more than {_MOST_FIELD_BYTES} bytes")

    def _end(self) -> None:
        content = self._spool.content()
        if self._file_name is None:
            self._fields[self._name] = bytes(content).decode("utf-8", "replace")
        elif self._file_name or len(content):
            self._file = SentFile(self._file_name, content)
        self._spool.close()
