"""Ask everybody, and hear who did not answer: bus.request() and message.reply().

python request.py [HOST:PORT]
"""

import os
import sys

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")
SHELVES = {"north": {"tea": 3}, "south": {"tea": 4, "milk": 1}}


def connect(name: str) -> zkms.Bus:
    """One bus per process is enough; here one process plays four."""
    return zkms.connect(HOSTS, root=ROOT, client_id=name)


with connect("asker") as bus, connect("north") as north, connect("south") as south, connect("asleep") as asleep:
    for shop in (north, south):
        shelf = SHELVES[shop.client_id]
        shop.subscribe("stock", lambda message, shelf=shelf: message.reply(shelf[message.data]))

    answers = bus.request("stock", "tea", timeout=30.0)  # returns as soon as all have answered
    print("tea:", sum(answer.data for answer in answers), "from", len(answers), "shops")

    for answer in sorted(bus.request("stock", "milk", timeout=30.0), key=lambda answer: answer.client):
        print(answer.client, "says", answer.error or answer.data)

    asleep.subscribe("stock")  # a subscription that nobody reads
    answers = bus.request("stock", "tea", timeout=2.0)
    print("no answer from", *(name.split("~")[0] for name in answers.missing))
