"""From publish() to the queues: who gets a message, what fits, one transaction a frame, and the receipt.

May import `context` and the rooms below it, never `consume` or a façade. Read `publisher` first, then `pipeline`.
"""
