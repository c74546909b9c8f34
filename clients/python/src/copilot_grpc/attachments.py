"""Attachments of prompts."""

from __future__ import annotations

import asyncio
import mimetypes
import os
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Union

if TYPE_CHECKING:
    from .cli import v1 as cli

PIECE = 256 << 10
# Larger attachments are sent in pieces.
INLINE = 1 << 20


@dataclass(frozen=True)
class Attachment:
    """An attachment of a prompt. The class methods make it.

    Attributes:
        message: The attachment; for `data`, `upload` and `stream` without its bytes.
        source: The bytes: themselves, a file of this machine, an open binary file, or an asynchronous iterable.
    """

    message: cli.Attachment
    source: Union[bytes, Path, BinaryIO, AsyncIterable[bytes], None] = None

    @classmethod
    def path(cls, path: Union[str, os.PathLike[str]], *, directory: bool = False) -> Attachment:
        """A file or directory on the CLI's machine. The CLI reads it. The path should be absolute."""
        from .cli import v1 as cli

        text = os.fspath(path)
        name = os.path.basename(text.rstrip("/")) or text
        if directory:
            return cls(cli.Attachment(directory=cli.AttachmentDirectory(path=text, display_name=name)))
        return cls(cli.Attachment(file=cli.AttachmentFile(path=text, display_name=name)))

    @classmethod
    def data(cls, data: bytes, *, mime_type: str, name: str = "") -> Attachment:
        """Bytes, such as an image."""
        return cls(_blob(mime_type, name), data)

    @classmethod
    def upload(cls, path: Union[str, os.PathLike[str]], *, mime_type: str | None = None) -> Attachment:
        """The content of a file of this machine. The MIME type follows from the name unless it is given."""
        guessed = mime_type or mimetypes.guess_type(path)[0] or "application/octet-stream"
        return cls(_blob(guessed, os.path.basename(path)), Path(path))

    @classmethod
    def stream(cls, source: Union[BinaryIO, AsyncIterable[bytes]], *, mime_type: str, name: str = "") -> Attachment:
        """Bytes that are read while they are sent. `Session.send` sends them in pieces; other calls collect them."""
        return cls(_blob(mime_type, name), source)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The bytes, in pieces of at most 256 KiB. Files are read in a thread."""
        source = self.source
        if isinstance(source, bytes):
            for at in range(0, len(source), PIECE):
                yield source[at : at + PIECE]
        elif isinstance(source, Path):
            file = await asyncio.to_thread(source.open, "rb")
            try:
                while piece := await asyncio.to_thread(file.read, PIECE):
                    yield piece
            finally:
                await asyncio.to_thread(file.close)
        elif isinstance(source, AsyncIterable):
            async for piece in source:
                for at in range(0, len(piece), PIECE):
                    yield piece[at : at + PIECE]
        elif source is not None:
            while piece := await asyncio.to_thread(source.read, PIECE):
                yield piece

    async def whole(self) -> cli.Attachment:
        """The attachment with its bytes."""
        from .cli import v1 as cli

        if self.source is None:
            return self.message
        whole = cli.Attachment()
        whole.CopyFrom(self.message)
        whole.blob.data = b"".join([piece async for piece in self.pieces()])
        return whole

    @property
    def is_large(self) -> bool:
        """Whether the bytes are to be sent in pieces."""
        if isinstance(self.source, bytes):
            return len(self.source) > INLINE
        if isinstance(self.source, Path):
            return self.source.stat().st_size > INLINE
        return self.source is not None


def _blob(mime_type: str, name: str) -> cli.Attachment:
    from .cli import v1 as cli

    blob = cli.AttachmentBlob(mime_type=mime_type)
    if name:
        blob.display_name = name
    return cli.Attachment(blob=blob)
