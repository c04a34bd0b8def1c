"""The one way to ZooKeeper: session, connection, I/O thread, wire format, and recipes on top of them.

May import only what all rooms share (errors, names, config, security, checks); nothing outside this room and
`zkms.testing` imports kazoo. Read `session` first.
"""
