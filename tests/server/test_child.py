"""Children that are asked: answers in order, deadlines, and what a child said last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from zkms.errors import ZkmsError
from zkms.server.child import TalkingChild

PROGRAM = """
import json, os, sys
for line in sys.stdin:
    order = json.loads(line)
    if order == "die":
        sys.exit("it was told to")
    if order != "nothing":
        print(json.dumps([order, os.environ.get("GREETING")]), flush=True)
"""
ANSWER = msgspec.json.Decoder(list[str])


class OddError(ZkmsError):
    """What the test's child raises."""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[TalkingChild]:
    """A child that repeats what it is told."""
    (tmp_path / "echo.py").write_text(PROGRAM)
    env = {"PYTHONPATH": str(tmp_path), "GREETING": "hello"}
    made = TalkingChild("the echo", "echo", log=tmp_path / "echo.log", env=env, error=OddError)
    yield made
    made.kill()


def test_answers_come_in_the_order_of_the_questions(child: TalkingChild) -> None:
    """Two orders at once, then their answers; it ends with its input."""
    child.tell("one")
    child.tell("two")
    assert [child.answer(ANSWER, 60) for _ in range(2)] == [["one", "hello"], ["two", "hello"]]
    child.close(60)
    assert child.returncode == 0


def test_no_answer_in_time_is_an_error(child: TalkingChild) -> None:
    """With the child's name in it."""
    child.tell("nothing")
    with pytest.raises(OddError, match=r"the echo did not answer within 0.1 s"):
        child.answer(ANSWER, 0.1)


def test_the_end_of_a_child_is_told_with_its_last_words(child: TalkingChild) -> None:
    """To who waits for an answer; the log has what it wrote to stderr."""
    child.tell("die")
    with pytest.raises(OddError, match="the echo has ended by itself; its last words: it was told to"):
        child.answer(ANSWER, 60)
