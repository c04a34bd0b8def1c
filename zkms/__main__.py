"""`python -m zkms` is `zkms`."""

from zkms.cli import main

main(prog_name="zkms")
