"""Texts in the record: short ones as they are, longer ones compressed with a dictionary of this archive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import islice

import zstandard

_PLAIN_BELOW = 96
_LEVEL = 3
_DICTIONARY_BYTES = 65_536
_SAMPLES = 1_000
_SAMPLE_CHARS = 1_024
# Below this a dictionary would learn too little; the texts until then are compressed without one.
_MIN_SAMPLES = 400


Pack = Callable[[str], "str | bytes | None"]


class Bodies:
    """Packs and unpacks texts. zstd frames name the dictionary they need, so texts from before it stay readable."""

    def __init__(self, stored_dictionary: Callable[[], bytes | None]) -> None:
        self._stored_dictionary = stored_dictionary
        # Neither compressors nor decompressors may be used by two threads at once.
        self._local = threading.local()
        self._dictionary = _dictionary(stored_dictionary())

    @property
    def trained(self) -> bool:
        return self._dictionary is not None

    def learn(self, dictionary: bytes) -> None:
        self._use(dictionary)

    def _use(self, dictionary: bytes | None) -> None:
        self._dictionary = _dictionary(dictionary)
        self._local = threading.local()

    def pack(self, text: str) -> str | bytes | None:
        return self.packer()(text)

    def packer(self) -> Pack:
        """Packs many texts, as long as no other dictionary is learned. For one thread."""
        compress = self._compressor.compress

        def pack(text: str) -> str | bytes | None:
            if not text:
                return None
            if len(text) < _PLAIN_BELOW:
                return text
            return compress(text.encode())

        return pack

    def unpack(self, body: str | bytes | None) -> str:
        if body is None:
            return ""
        if isinstance(body, str):
            return body
        try:
            return self._decompress(body).decode()
        except zstandard.ZstdError:
            self._use(self._stored_dictionary())  # the writer has trained one since this reader looked
            return self._decompress(body).decode()

    @property
    def _compressor(self) -> zstandard.ZstdCompressor:
        compressor: zstandard.ZstdCompressor | None = getattr(self._local, "compressor", None)
        if compressor is None:
            compressor = self._local.compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=self._dictionary)
        return compressor

    def _decompress(self, body: bytes) -> bytes:
        try:
            decompress: Callable[[bytes], bytes] = self._local.decompress
        except AttributeError:
            decompress = self._local.decompress = zstandard.ZstdDecompressor(dict_data=self._dictionary).decompress
        return decompress(body)


def _dictionary(data: bytes | None) -> zstandard.ZstdCompressionDict | None:
    return zstandard.ZstdCompressionDict(data) if data else None


def train_dictionary(texts: Iterable[str]) -> bytes | None:
    """A compression dictionary for texts like these; None when they are too few or too different."""
    samples = list[bytes | bytearray | memoryview](
        text[:_SAMPLE_CHARS].encode() for text in islice((t for t in texts if len(t) >= _PLAIN_BELOW), _SAMPLES)
    )
    if len(samples) < _MIN_SAMPLES:
        return None
    try:
        return zstandard.train_dictionary(_DICTIONARY_BYTES, samples, level=_LEVEL).as_bytes()
    except zstandard.ZstdError:
        return None
