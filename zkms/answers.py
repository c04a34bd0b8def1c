"""What came back from bus.request(): the answers, and who did not answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """One subscription's answer."""

    subscription: str
    """Who was asked: a live subscription's id, the name of a durable one, or the group."""
    client: str
    """The client that answered."""
    data: Any
    """What it answered; None if that is an error."""
    error: str | None = None
    """What went wrong there, if anything did."""


class Answers(Sequence[Answer]):
    """Answers in the order in which they came. `missing` did not answer in time; `complete` says that nobody is."""

    def __init__(self, answers: Iterable[Answer], missing: Iterable[str]) -> None:
        self._answers = tuple(answers)
        self.missing = tuple(missing)
        """Subscriptions that were asked and did not answer: too slow, dead, or without room in their queue."""

    @property
    def complete(self) -> bool:
        """Whether everybody who was asked has answered."""
        return not self.missing

    def __len__(self) -> int:
        return len(self._answers)

    @overload
    def __getitem__(self, index: int) -> Answer: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Answer, ...]: ...

    def __getitem__(self, index: int | slice) -> Answer | tuple[Answer, ...]:
        return self._answers[index]

    def __repr__(self) -> str:
        return f"<Answers: {len(self._answers)} came, {len(self.missing)} missing>"
