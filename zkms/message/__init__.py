"""A message, and how it becomes bytes and is made of bytes again: codec, encode, frame, decode.

May import `tree`, `zookeeper` and what all rooms share. Read `message` first, then `frame`.
"""
