"""Django's cache in two processes: what one of them changes, the other does not serve any more.

python django_cache.py [HOST:PORT]
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")
CACHES = {
    "default": {
        "BACKEND": "zkms.integrations.django.ZkmsCache",
        "LOCATION": HOSTS,
        "OPTIONS": {"root": ROOT, "wait": 10.0},  # a write waits until every process has dropped the old value
    }
}


def worker(pipe: Connection, users: dict[int, str]) -> None:
    """Read and rename users as it is told, until the pipe is closed."""
    from django.conf import settings

    settings.configure(CACHES=CACHES)
    from django.core.cache import cache

    while (request := pipe.recv()) is not None:
        match request:
            case ("rename", user, name):
                users[user] = name
                cache.delete(f"user:{user}")
                pipe.send("done")
            case ("read", user):
                pipe.send(cache.get_or_set(f"user:{user}", lambda user=user: users[user]))


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        users = manager.dict({1: "Ada"})  # stands for the database
        pairs = [context.Pipe() for _ in range(2)]
        workers = [context.Process(target=worker, args=(theirs, users)) for _, theirs in pairs]
        for process in workers:
            process.start()

        def ask(number: int, *request: object) -> str:
            """What a worker answers."""
            pairs[number][0].send(request)
            return str(pairs[number][0].recv())

        print("cached:", ask(0, "read", 1), ask(1, "read", 1))
        print("renamed by the first:", ask(0, "rename", 1, "Grace"))
        print("read by the second:", ask(1, "read", 1))
        for (ours, _), process in zip(pairs, workers, strict=True):
            ours.send(None)
            process.join()
