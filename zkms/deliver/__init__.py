"""From a queue to the user's code: reader, inbox, the live subscription, and acks of whole entries.

May import `context` and the rooms below it. Read `reader` first, then `live`.
"""
