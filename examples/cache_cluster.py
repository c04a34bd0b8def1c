"""A small cluster: three processes with local caches that forget a user when somebody changes it.

python cache_cluster.py [HOST:PORT]
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")


def node(pipe: Connection, prices: dict[str, int]) -> None:
    """Serve prices from a local cache until the pipe is closed; a miss asks the shared, slow store."""
    cache: dict[str, int] = {}
    with zkms.connect(HOSTS, root=ROOT) as bus:  # in the child: a connection does not survive a fork
        bus.subscribe("prices", lambda message: cache.pop(message.data, None), on_gap=lambda _gap: cache.clear())
        pipe.send("ready")
        while (name := pipe.recv()) is not None:
            if name not in cache:
                cache[name] = prices[name]
            pipe.send(cache[name])


def main() -> None:
    """Fill the caches, change the store, tell everybody, and look again."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        prices = manager.dict({"apple": 10})
        pairs = [context.Pipe() for _ in range(3)]
        nodes = [context.Process(target=node, args=(theirs, prices)) for _, theirs in pairs]
        pipes = [ours for ours, _ in pairs]
        for process in nodes:
            process.start()
        print("nodes:", [pipe.recv() for pipe in pipes])

        def ask() -> list[int]:
            for pipe in pipes:
                pipe.send("apple")
            return [pipe.recv() for pipe in pipes]

        print("cached:", ask())
        prices["apple"] = 12
        print("changed, nobody told:", ask())
        with zkms.connect(HOSTS, root=ROOT) as bus:
            receipt = bus.publish("prices", "apple").wait(timeout=5.0)
        print(f"told {len(receipt.acked)} nodes:", ask())
        for pipe, process in zip(pipes, nodes, strict=True):
            pipe.send(None)
            process.join()


if __name__ == "__main__":
    main()
