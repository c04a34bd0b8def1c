"""A TTLCache that a program has already, made coherent: what one process drops, the other loads again.

python cachetools_mapping.py [HOST:PORT]
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

import cachetools

import zkms
from zkms.cache import coherent

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")


def worker(pipe: Connection, prices: dict[str, int]) -> None:
    """Read and change prices as it is told, until the pipe is closed."""
    with zkms.connect(HOSTS, root=ROOT) as bus:
        cache = coherent(cachetools.TTLCache(1000, ttl=60), bus, "prices")

        @cachetools.cached(cache, key=lambda article: article)
        def price(article: str) -> int:
            return prices[article]

        while (request := pipe.recv()) is not None:
            match request:
                case ("change", article, new):
                    prices[article] = new
                    pipe.send(bool(cache.invalidate(article, wait=10.0)))
                case ("read", article):
                    pipe.send(price(article))


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        prices = manager.dict({"apple": 10})  # stands for the database
        pairs = [context.Pipe() for _ in range(2)]
        workers = [context.Process(target=worker, args=(theirs, prices)) for _, theirs in pairs]
        for process in workers:
            process.start()

        def ask(number: int, *request: object) -> str:
            """What a worker answers."""
            pairs[number][0].send(request)
            return str(pairs[number][0].recv())

        print("cached:", ask(0, "read", "apple"), ask(1, "read", "apple"))
        print("dropped by everybody:", ask(0, "change", "apple", 12))
        print("read by the second:", ask(1, "read", "apple"))
        for (ours, _), process in zip(pairs, workers, strict=True):
            ours.send(None)
            process.join()
