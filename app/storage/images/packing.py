"""Entries of an image of answers, each compressed alone, with a dictionary of the texts that the rows of its file
share: the names of columns, and common values (decision 17).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

import zstandard

# Entries of this size are worth a dictionary, which takes as long as an image of a megabyte.
LEAST_BYTES: Final = 2 * 2**20
_DICTIONARY_BYTES: Final = 4096  # four times as many save nothing more
_MOST_SAMPLES: Final = 1000
_SAMPLED_BYTES: Final = 2**19
_LEVEL: Final = 1  # levels 3 and 6 save no twentieth
# The file says the dictionary, and checksums are of blocks: a header would repeat it in each entry.
_FORMAT: Final = zstandard.FORMAT_ZSTD1_MAGICLESS

Pack = Callable[[bytes], bytes]


def dictionary_of(entries: Sequence[bytes], rows: int) -> bytes:
    """Return a dictionary of zstd for the ``rows`` entries of a file, of which these are the first; empty if all are
    too few to gain by one.
    """
    total = sum(map(len, entries))
    if total * rows < LEAST_BYTES * len(entries) or not entries:
        return b""
    samples: list[bytes | bytearray | memoryview] = list(
        entries[:: max(1, len(entries) // _MOST_SAMPLES, total // _SAMPLED_BYTES)]
    )
    try:
        return bytes(zstandard.train_dictionary(_DICTIONARY_BYTES, samples, level=_LEVEL).as_bytes())
    except zstandard.ZstdError:  # a few large entries: what repeats does so in each
        return entries[0][:_DICTIONARY_BYTES]


def packing(dictionary: bytes) -> Pack:
    """Return a function that compresses an entry with a dictionary; without a dictionary entries stay as they are."""
    if not dictionary:
        return bytes
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, format=_FORMAT, write_content_size=True, write_dict_id=False, write_checksum=False
    )
    known = zstandard.ZstdCompressionDict(dictionary)
    known.precompute_compress(compression_params=parameters)
    return zstandard.ZstdCompressor(dict_data=known, compression_params=parameters).compress


def unpacking(dictionary: bytes) -> Pack:
    """Return a function that decompresses entries of ``packing`` with the same dictionary. Threads may share it."""
    if not dictionary:
        return bytes
    known = zstandard.ZstdCompressionDict(dictionary)
    decompress = zstandard.ZstdDecompressor(dict_data=known, format=_FORMAT).decompress
    one_at_a_time = threading.Lock()  # a context of zstd is for one thread

    def unpack(packed: bytes) -> bytes:
        with one_at_a_time:
            return decompress(packed)

    return unpack
