"""The mutation check: every mechanism that a guarantee rests on is switched off once, and a test has to notice.

mechanisms.py   what is switched off: the file, its text with and without the mechanism, and the test that must fail
trial.py        a copy of the sources in which one mechanism is off, and the test run there
__main__.py     `python -m verification.mutations [NAME...]`, or `make mutations`: all of it, as a table
"""
