"""Commands that send, receive, show and remove messages: pub, sub, peek, purge, dead, unsubscribe; one command a file.

May import every room below the command line. Read `pub` first; `sub` hands messages to `action`.
"""
