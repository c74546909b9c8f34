"""Positions in the journal of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .bridge.v1 import Position as PositionMessage

TRAILER = "copilot-position"


class Position(NamedTuple):
    """A position in a session's journal. Positions are ordered, and stay valid across restarts."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}/{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Reads the text form, EPOCH/SEQ. Raises ValueError for any other text."""
        epoch, slash, seq = text.partition("/")
        if not (slash and epoch.isdecimal() and seq.isdecimal()):
            raise ValueError(f"{text!r} is no position: want EPOCH/SEQ")
        return cls(int(epoch), int(seq))

    @classmethod
    def of(cls, message: PositionMessage) -> Position:
        """The position of a message."""
        return cls(message.epoch, message.seq)

    def message(self) -> PositionMessage:
        """The position as a message."""
        from .bridge.v1 import Position as PositionMessage

        return PositionMessage(epoch=self.epoch, seq=self.seq)


class Progress:
    """The latest position of a session that this program has seen."""

    __slots__ = ("last",)

    def __init__(self, last: Position | None = None) -> None:
        self.last = last

    def note(self, message: PositionMessage) -> None:
        """Takes a position, unless a later one is known. An unset message changes nothing."""
        epoch, seq = message.epoch, message.seq
        if (epoch, seq) > (self.last or (0, 0)):
            self.last = Position(epoch, seq)

    def note_trailers(self, trailers: object) -> None:
        """Takes the position in the trailers of a reply."""
        for key, value in trailers or ():  # type: ignore[attr-defined]
            if key == TRAILER:
                self.note(Position.parse(value).message())
