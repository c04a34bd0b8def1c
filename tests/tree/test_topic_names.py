"""Names that the library accepts are names that ZooKeeper takes."""

from __future__ import annotations

import pytest

from zkms import Bus

ODD = [
    *(" ", "a b", " leading", "trailing ", "a.b", "...", "~", "!", "users!", "%2F", "a:b", 'quo"te', "back\\slash"),
    *(
        "a*b",
        "#",
        "ä",
        "日本語",
        "пользователи",
        "مستخدم",
        "e\u0301",
        "½",
        "€",
        "\u200b",
        "\uffee",
        "x" * 255,
        "ä" * 127,
    ),
    *("f.1.10.0000000000", "clients", "subscribers", "0", "None", "{}", "$", "@"),
]


@pytest.mark.parametrize("topic", ODD, ids=ascii)
def test_odd_but_accepted_names_are_real_topics(bus: Bus, topic: str) -> None:
    """Subscribe, publish, receive, list and unsubscribe work with each."""
    with bus.subscribe(topic) as sub:
        receipt = bus.publish(topic, topic)
        message = sub.get(timeout=5)
        assert (message.topic, message.data) == (topic, topic)
        assert receipt.wait(timeout=5).acked == (sub.id,)
        assert [info.topic for info in bus.topics()] == [topic]
    assert bus.queues() == []
