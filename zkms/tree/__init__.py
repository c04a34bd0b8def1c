"""Every znode of zkms: its path, the name of an entry, the record it holds, its ACL.

May import `zookeeper` and what all rooms share. Read `paths` first: the tree is drawn there.
"""
