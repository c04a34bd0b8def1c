"""Commands that show what is there: topics, clients, queues, groups and, live, top; one command a file.

May import every room below the command line. Read `queues` first; `overview` has the figures behind `top`.
"""
