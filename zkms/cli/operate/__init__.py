"""Commands for whoever runs it: server, doctor (with its `checks`), backup, restore, access, quota; one command a file.

May import every room below the command line. Read `doctor` first.
"""
