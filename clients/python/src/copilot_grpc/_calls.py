"""The pending callbacks that a participant answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Union

from ._answers import answer_error
from ._handlers import Handlers
from ._link import Link
from ._retry import Backoff, Reconnect
from .bridge import v1 as bridge
from .errors import CallbackNotFound, CallbackResolved, CopilotError

_log = logging.getLogger("copilot_grpc")
# Other handlers than tools that run at once, so that questions to people do not hold up tools.
MAX_QUESTIONS = 64
# Callbacks of one participant. The server has no more of a session.
MAX_CALLS = 1024


class _LinkDown:
    """The link broke before the reply."""


_Reply = Union[CopilotError, _LinkDown, None]


class _Call:
    """A callback in hand. The answer of a handler that ran stays here until the server has acknowledged it."""

    __slots__ = ("callback", "reply", "task")

    def __init__(self, callback: bridge.Callback) -> None:
        self.callback = callback
        self.reply: asyncio.Future[_Reply] | None = None
        self.task: asyncio.Task[None] | None = None

    def notify(self, reply: _Reply) -> None:
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(reply)


class Calls:
    """Callbacks in hand, a task for each. Nothing here waits for a handler."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        max_tools: int,
        policy: Reconnect,
        live: Callable[[], Awaitable[Link]],
        read_whole: Callable[[str, str], Awaitable[bridge.Callback]],
    ) -> None:
        self._handlers, self._policy, self._live, self._read_whole = handlers, policy, live, read_whole
        self._tools, self._questions = asyncio.Semaphore(max_tools), asyncio.Semaphore(MAX_QUESTIONS)
        self._by_id: dict[str, _Call] = {}

    def ask(self, callback: bridge.Callback, offered: bool) -> None:
        """Starts to answer a callback, unless a task for it exists: that one sends its answer again."""
        if callback.callback_id in self._by_id:
            return
        if not callback.total_bytes and not self._handlers.takes(callback, offered):
            return
        call = _Call(callback)
        self._by_id[callback.callback_id] = call
        crowded = len(self._by_id) > MAX_CALLS
        work = self._refuse(call) if crowded else self._serve(call, offered)
        call.task = asyncio.create_task(work, name=f"copilot-grpc callback {callback.callback_id}")

    def settle(self, callback_id: str, failure: CopilotError | None) -> None:
        """Takes the server's reply to an answer."""
        if call := self._by_id.get(callback_id):
            call.notify(failure)

    def withdraw(self, callback_id: str) -> None:
        """Ends a callback whose answer is no longer needed: its task is cancelled."""
        call = self._by_id.get(callback_id)
        if call is None:
            return
        if call.reply is not None:  # answered, by this participant or another one
            call.notify(None)
        elif call.task is not None:
            del self._by_id[callback_id]
            call.task.cancel()

    def reconcile(self, pending: Iterable[bridge.Callback], participant_id: str) -> None:
        """Compares with what is pending on the server: takes up what is new, and ends what is over."""
        by_id = {callback.callback_id: callback for callback in pending}
        for callback_id in [known for known in self._by_id if known not in by_id]:
            self.withdraw(callback_id)
        for callback in by_id.values():
            # A callback without participants, or whose participants left, is open to every handler.
            to = callback.participant_ids
            self.ask(callback, not to or participant_id in to)

    def link_down(self) -> None:
        """Wakes the tasks that wait for a reply, to send their answers on the next link."""
        for call in self._by_id.values():
            call.notify(_LinkDown())

    async def close(self) -> None:
        """Cancels all handlers and waits for their tasks, except for the caller's own."""
        tasks = [call.task for call in self._by_id.values() if call.task is not None]
        self._by_id.clear()
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*(t for t in tasks if t is not asyncio.current_task()), return_exceptions=True)

    async def _serve(self, call: _Call, offered: bool) -> None:
        try:
            callback = call.callback
            if callback.total_bytes:
                callback = await self._whole(callback)
                if not callback.total_bytes and not self._handlers.takes(callback, offered):
                    return
            if callback.total_bytes:
                answer = answer_error("the request could not be read")
            else:
                async with self._tools if callback.HasField("tool_call") else self._questions:
                    answer = await self._handlers.answer(callback)
            await self._deliver(call, answer)
        except CopilotError as error:
            _log.debug("callback dropped: %s", error)
        finally:
            self._drop(call)

    async def _refuse(self, call: _Call) -> None:
        _log.warning("too many callbacks at once", extra={"callback_id": call.callback.callback_id})
        try:
            await self._deliver(call, answer_error("too many callbacks at once"))
        finally:
            self._drop(call)

    async def _whole(self, callback: bridge.Callback) -> bridge.Callback:
        """Reads a callback whose request did not fit into a frame. Returns it unchanged if that fails."""
        try:
            return await self._read_whole(callback.session_id, callback.callback_id)
        except CallbackResolved:
            raise
        except CopilotError as error:
            _log.warning("callback not read: %s", error, extra={"callback_id": callback.callback_id})
            return callback

    async def _deliver(self, call: _Call, answer: bridge.Answer) -> None:
        """Sends an answer until the server has taken it: again on a new link, or after the runtime was away, and as an
        error if the server refuses it, so that the turn continues."""
        callback_id = call.callback.callback_id
        backoff = Backoff(self._policy)
        while True:
            link = await self._live()
            call.reply = asyncio.get_running_loop().create_future()
            frame = bridge.AttachRequest(answer=bridge.CallbackAnswer(callback_id=callback_id, answer=answer))
            await link.send_now(frame)
            if link.is_down:
                continue
            if answer.HasField("abstain"):
                return  # the server does not reply
            refusal = await call.reply
            if isinstance(refusal, _LinkDown):
                backoff.reset()
                continue
            if not isinstance(refusal, CopilotError) or isinstance(refusal, (CallbackResolved, CallbackNotFound)):
                return
            _log.warning("answer refused: %s", refusal, extra={"callback_id": callback_id})
            if refusal.code == "INVALID_ARGUMENT" and not answer.HasField("error"):
                answer = answer_error(refusal.message)
            elif refusal.code != "UNAVAILABLE" or not await backoff.wait(refusal):
                return

    def _drop(self, call: _Call) -> None:
        if self._by_id.get(call.callback.callback_id) is call:
            del self._by_id[call.callback.callback_id]
