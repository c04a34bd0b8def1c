"""Every znode of zkms: its path, the names of entries, its record, its ACL.

May import `zookeeper` and what all rooms share. Read `paths` first: the tree is drawn there.
"""
