"""A real ZooKeeper on this machine: Java, jars, configuration, and the processes of its nodes.

May import what all rooms share; `zkms server`, bench, demo and `zkms.testing` use it. Read `embedded` first.
"""
