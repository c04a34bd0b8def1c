"""Fuzzing: with any bad input nothing crashes or hangs, memory stays bounded, and no name leads out of its folder.

target.py      what can be fuzzed, and what it means to pass
frames.py, names.py, records.py, wire.py, trails.py, arguments.py, web.py   the targets
mutator.py     a million inputs from a few, the same ones each time
guided.py      the same targets under atheris (libFuzzer), which sees what an input has reached
__main__.py    `make fuzz INPUTS=1000000`: all of them, as a table

tests/verification/fuzz runs a short selection of each target, and throws junk into a real tree with everything at work.
"""
