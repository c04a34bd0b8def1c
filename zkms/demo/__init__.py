"""What `zkms demo` shows: nodes with caches, a writer that invalidates, a node that dies, a cleaner that tidies up.

database   the users, in SQLite: what the nodes cache
node       one cache node: a process of its own
cluster    starts, asks, kills and ends the nodes
story      the steps, each of which proves what it says

May import the façade, the cleaner and `zkms.server`. Read `story` first.
"""
