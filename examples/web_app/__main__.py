"""Three web processes, one SQLite file, a cache in each: edit a row on the page, and see every process drop it.

python examples/web_app [HOST:PORT] [--port 8000]

Each process serves the page, and the rows from its own memory. See node.py for the few lines that matter.
"""

import argparse
import multiprocessing
import os
import signal
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

import node

HOSTS = os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")
NODES = 3


def main() -> None:
    """Start the processes, say where they are, and wait for Ctrl-C."""
    parser = argparse.ArgumentParser(description="three web processes with coherent caches")
    parser.add_argument("hosts", nargs="?", default=HOSTS, help=f"ZooKeeper (default: {HOSTS})")
    parser.add_argument("--port", type=int, default=8000, help="of the first; 0: any that is free (default: 8000)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends it like Ctrl-C
    sockets = [socket.create_server(("127.0.0.1", options.port + i if options.port else 0)) for i in range(NODES)]
    urls = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory, "shop.sqlite")
        node.make_database(database)
        pipes = [context.Pipe(duplex=False) for _ in range(NODES)]
        processes = [
            context.Process(target=node.serve, args=(each, theirs, urls, options.hosts, ROOT, database))
            for each, (theirs, _) in zip(sockets, pipes, strict=True)
        ]
        for process in processes:
            process.start()
        print("open one of", *urls, flush=True)
        with suppress(KeyboardInterrupt):
            for process in processes:
                process.join()
        for (_, ours), process in zip(pipes, processes, strict=True):
            ours.close()
            process.join()


if __name__ == "__main__":
    main()
