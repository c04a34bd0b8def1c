"""Commands for whoever runs it: server, doctor (and its `checks`), backup and restore, access, quota; one command a file.

May import every room below the command line. Read `doctor` first.
"""
