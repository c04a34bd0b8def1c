"""A durable subscription: what is published while its reader is away waits for it, and what is acked never comes again.

python durable.py [HOST:PORT]
"""

import os
import sys

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")

with zkms.connect(HOSTS, root=ROOT) as shop:
    with zkms.connect(HOSTS, root=ROOT) as reader:
        reader.subscribe("orders", name="billing")
    shop.publish_many("orders", ["tea", "cake", "milk"])  # nobody is there
    with zkms.connect(HOSTS, root=ROOT) as reader:
        billing = reader.subscribe("orders", name="billing")
        message = billing.get(timeout=10)
        if message is not None:
            print("billed", message.data)
            message.ack()
    with zkms.connect(HOSTS, root=ROOT) as reader:  # another process, another day
        billing = reader.subscribe("orders", name="billing")
        print("still to bill:", [message.data for message in billing.fetch(10, timeout=10)])
        billing.unsubscribe()
