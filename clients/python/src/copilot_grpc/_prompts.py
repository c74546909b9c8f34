"""Prompts with their attachments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Union

from ._run import current_trace
from .attachments import Attachment
from .bridge import v1 as bridge

if TYPE_CHECKING:
    from .cli import v1 as cli

Prompt = Union[str, "bridge.Prompt"]
AnyAttachment = Union[Attachment, "cli.Attachment"]


def has_large(attachments: Sequence[AnyAttachment]) -> bool:
    """Whether an attachment is to be sent in pieces."""
    return any(isinstance(item, Attachment) and item.is_large for item in attachments)


async def make_prompt(
    prompt: Prompt, attachments: Sequence[AnyAttachment], immediate: bool, inline: bool = True
) -> bridge.Prompt:
    """The message of a prompt, with the current trace. Without `inline`, large attachments have no bytes."""
    from .cli import v1 as cli

    message = bridge.Prompt()
    if isinstance(prompt, str):
        message.text = prompt
    else:
        message.CopyFrom(prompt)
    if immediate:
        message.mode = cli.SendMode.SEND_MODE_IMMEDIATE
    if not message.traceparent:
        for name, value in current_trace().items():
            setattr(message, name, value)
    for item in attachments:
        if isinstance(item, Attachment):
            item = await item.whole() if inline or not item.is_large else item.message
        message.attachments.append(item)
    return message


async def send_pieces(
    request: bridge.SendRequest, attachments: Sequence[AnyAttachment]
) -> AsyncGenerator[bridge.SendStreamRequest, None]:
    """The messages of SendStream: the request, and the bytes of its large attachments."""
    yield bridge.SendStreamRequest(request=request)
    first = len(request.prompt.attachments) - len(attachments)  # the prompt may have had some
    for index, item in enumerate(attachments, first):
        if isinstance(item, Attachment) and item.is_large:
            async for data in item.pieces():
                yield bridge.SendStreamRequest(chunk=bridge.AttachmentChunk(attachment=index, data=data))
