"""The one way to ZooKeeper: session, connection, I/O thread, wire format, and recipes on top of them.

May import only what all rooms share (errors, names, config, security, checks). Nobody else talks to ZooKeeper through
kazoo, but for `zkms.testing` and `zkms.bench`; its private parts are used in `kazoo_client` alone.
Read `session` first.
"""
