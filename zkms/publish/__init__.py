"""From publish() to the queues: a topic's subscriptions, queue limits, one transaction for each frame, and receipts.

May import `context` and the rooms below it, never `consume` or a façade. Read `publisher` first, then `pipeline`.
"""
