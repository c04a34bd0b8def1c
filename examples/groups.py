"""Two workers share jobs: those of one customer are done in order, by one of them, and what fails is tried again.

python groups.py [HOST:PORT]
"""

import os
import sys
import threading

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")
done = threading.Semaphore(0)


def work(who: str, message: zkms.Message) -> None:
    """Do a job; the first attempt at job 3 fails."""
    if message.data == 3 and message.attempts == 1:
        raise ConnectionError("the mail server is away")
    print(f"{who} did job {message.data} of {message.key}, attempt {message.attempts}", flush=True)
    done.release()


def connect() -> zkms.Bus:
    """As a process of its own would."""
    return zkms.connect(HOSTS, root=ROOT)


with connect() as first, connect() as second, connect() as shop:
    shop.create_group("jobs", "workers", partitions=4)
    shop.publish_many("jobs", range(10), key=lambda job: f"customer-{job % 3}")  # they wait for the workers
    for who, bus in (("ada", first), ("bob", second)):
        bus.subscribe("jobs", lambda message, who=who: work(who, message), group="workers", backoff=0.2)
    for _ in range(10):
        done.acquire(timeout=30)
print("all done")
