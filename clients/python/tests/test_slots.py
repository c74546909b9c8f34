"""The limit of tasks that do something at once."""

from __future__ import annotations

import asyncio

import pytest

from copilot_grpc._slots import Slots

from .fake import soon


async def test_waiting_tasks_take_the_slot_in_order() -> None:
    slots = Slots(1)
    assert slots.take_now() and not slots.take_now()
    order: list[int] = []

    async def take(number: int) -> None:
        await slots.take()
        order.append(number)
        slots.release()

    tasks = [asyncio.create_task(take(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert not order
    slots.release()
    await soon(asyncio.gather(*tasks))
    assert order == [0, 1, 2] and slots.take_now()


@pytest.mark.parametrize("released", [False, True])
async def test_a_cancelled_task_takes_no_slot(released: bool) -> None:
    slots = Slots(1)
    assert slots.take_now()
    task = asyncio.create_task(slots.take())
    await asyncio.sleep(0)
    if released:
        slots.release()  # the slot and the cancellation arrive together
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    if not released:
        slots.release()
    assert slots.take_now() and not slots.take_now()
