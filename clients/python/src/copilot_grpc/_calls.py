"""The pending callbacks that a participant answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable

from ._answers import answer_error
from ._handlers import Handlers
from ._link import Link
from ._retry import Backoff, Reconnect
from ._slots import Slots
from .bridge import v1 as bridge
from .errors import CallbackNotFound, CallbackResolved, CopilotError

_log = logging.getLogger("copilot_grpc")
# Other handlers than tools that run at once, so that questions to people do not hold up tools.
MAX_QUESTIONS = 64
# Callbacks of one participant. The server has no more of a session.
MAX_CALLS = 1024


class _Call:
    """A callback in hand. The answer of a handler that ran stays here until the server has acknowledged it."""

    __slots__ = ("answer", "backoff", "callback", "is_settled", "refusal", "task")

    def __init__(self, callback: bridge.Callback) -> None:
        self.callback = callback
        self.answer: bridge.Answer | None = None
        # Computes the answer, or sends it. None while the answer is with the server.
        self.task: asyncio.Task[None] | None = None
        # The server's reply to the answer that was sent last, which the task has not looked at.
        self.refusal: CopilotError | None = None
        self.is_settled = False
        self.backoff: Backoff | None = None


class Calls:
    """Callbacks in hand, a task for each. Nothing here waits for a handler."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        max_tools: int,
        policy: Reconnect,
        link: Callable[[], Link | None],
        live: Callable[[], Awaitable[Link]],
        read_whole: Callable[[str, str], Awaitable[bridge.Callback]],
    ) -> None:
        self._handlers, self._policy, self._read_whole = handlers, policy, read_whole
        self._link, self._live = link, live
        self._tools, self._questions = Slots(max_tools), Slots(MAX_QUESTIONS)
        self._by_id: dict[str, _Call] = {}
        self._loop = asyncio.get_running_loop()

    def ask(self, callback: bridge.Callback, offered: bool) -> None:
        """Starts to answer a callback, unless a task for it exists: that one sends its answer again."""
        if callback.callback_id in self._by_id:
            return
        if not callback.total_bytes and not self._handlers.takes(callback, offered):
            return
        call = _Call(callback)
        self._by_id[callback.callback_id] = call
        if len(self._by_id) > MAX_CALLS:
            _log.warning("too many callbacks at once", extra={"callback_id": callback.callback_id})
            call.answer = answer_error("too many callbacks at once")
            self._start(call, self._send(call))
        else:
            self._start(call, self._serve(call, offered))

    def settle(self, callback_id: str, failure: CopilotError | None) -> None:
        """Takes the server's reply to an answer."""
        call = self._by_id.get(callback_id)
        if call is None or call.answer is None:
            return
        if failure is None or isinstance(failure, (CallbackResolved, CallbackNotFound)):
            self._settled(call)
            return
        call.refusal = failure
        if call.task is None:
            self._start(call, self._send(call))

    def withdraw(self, callback_id: str) -> None:
        """Ends a callback whose answer is no longer needed: a handler that runs is cancelled."""
        call = self._by_id.get(callback_id)
        if call is None:
            return
        if call.answer is not None:  # answered, by this participant or another one
            self._settled(call)
        elif call.task is not None:
            del self._by_id[callback_id]
            call.task.cancel()

    def _settled(self, call: _Call) -> None:
        call.is_settled = True
        if call.task is None:
            self._drop(call)

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
        """Sends the answers that the server has not acknowledged again, on the next link."""
        for call in self._by_id.values():
            if call.backoff is not None:
                call.backoff.reset()
            if call.task is None:
                self._start(call, self._send(call))

    async def close(self) -> None:
        """Cancels all handlers and waits for their tasks, except for the caller's own."""
        tasks = [call.task for call in self._by_id.values() if call.task is not None]
        self._by_id.clear()
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*(t for t in tasks if t is not asyncio.current_task()), return_exceptions=True)

    def _start(self, call: _Call, work: Coroutine[None, None, None]) -> None:
        call.task = self._loop.create_task(work, name=f"copilot-grpc callback {call.callback.callback_id}")

    async def _serve(self, call: _Call, offered: bool) -> None:
        """Computes an answer, and sends it."""
        try:
            callback = call.callback
            if callback.total_bytes:
                callback = await self._whole(callback)
                if not callback.total_bytes and not self._handlers.takes(callback, offered):
                    return
            if callback.total_bytes:
                call.answer = answer_error("the request could not be read")
            else:
                slots = self._tools if callback.HasField("tool_call") else self._questions
                if not slots.take_now():
                    await slots.take()
                try:
                    call.answer = await self._handlers.answer(callback)
                finally:
                    slots.release()
        except CopilotError as error:
            _log.debug("callback dropped: %s", error)
        finally:
            if call.answer is None:
                self._drop(call)
        if call.answer is not None:
            await self._send(call)

    async def _whole(self, callback: bridge.Callback) -> bridge.Callback:
        """Reads a callback whose request did not fit into a frame. Returns it unchanged if that fails."""
        try:
            return await self._read_whole(callback.session_id, callback.callback_id)
        except CallbackResolved:
            raise
        except CopilotError as error:
            _log.warning("callback not read: %s", error, extra={"callback_id": callback.callback_id})
            return callback

    async def _send(self, call: _Call) -> None:
        """Gives the answer to the server. `settle` and `link_down` see to it that this happens again if it has to."""
        assert call.answer is not None
        frame = bridge.AttachRequest()
        given = frame.answer
        given.callback_id = call.callback.callback_id
        try:
            while not call.is_settled:
                if call.refusal is not None and not await self._again(call):
                    break
                link = self._link()
                if link is None:
                    link = await self._live()
                    if call.is_settled:
                        break
                given.answer.CopyFrom(call.answer)
                await link.send_now(frame)
                if link.is_down or call.refusal is not None:
                    continue
                if not call.is_settled and not given.answer.HasField("abstain"):  # the server does not reply to these
                    call.task = None
                    return
                break
        except CopilotError as error:
            _log.debug("callback dropped: %s", error)
        finally:
            if call.task is not None:
                self._drop(call)

    async def _again(self, call: _Call) -> bool:
        """Whether to send an answer again that the server has refused: after the runtime was away, or as an error, so
        that the turn continues."""
        refusal, call.refusal = call.refusal, None
        assert refusal is not None and call.answer is not None
        _log.warning("answer refused: %s", refusal, extra={"callback_id": call.callback.callback_id})
        if refusal.code == "INVALID_ARGUMENT" and not call.answer.HasField("error"):
            call.answer = answer_error(refusal.message)
            return True
        if call.backoff is None:
            call.backoff = Backoff(self._policy)
        return refusal.code == "UNAVAILABLE" and await call.backoff.wait(refusal)

    def _drop(self, call: _Call) -> None:
        if self._by_id.get(call.callback.callback_id) is call:
            del self._by_id[call.callback.callback_id]
