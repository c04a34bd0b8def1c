"""`async for` straight into what bus.subscribe() returns: nobody else has the subscription in hand.

Python tells an iterator nothing of a `break`, or of an error in the loop's body; but then it lets go of it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zkms.aio.message import Message

if TYPE_CHECKING:
    from zkms.aio.reading import Reading


class Iteration:
    """Messages; when nobody iterates any more, the subscription is given up."""

    def __init__(self, subscription: Reading[Any, Any]) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Iteration:
        return self

    async def __anext__(self) -> Message:
        return await anext(self._subscription)

    def __del__(self) -> None:
        self._subscription.abandon()
