"""Every command with arguments that are wrong: a sentence and the exit code for wrong usage, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from zkms.cli import COMMANDS, main
from zkms.cli.exit_codes import Exit


def every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """With those below groups."""
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from (((name, inner), found) for inner, found in command.commands.items())
        yield (name,), command


NUMBERS = (click.types.IntParamType, click.types.FloatParamType)
EVERY = {" ".join(names): (names, command) for names, command in every_command()}


def refused(arguments: list[str]) -> str:
    """What a command line that must be refused prints."""
    done = CliRunner().invoke(main, arguments)
    assert isinstance(done.exception, SystemExit), (arguments, done.exception)
    assert done.exit_code == Exit.USAGE, (arguments, done.output)
    assert "Traceback" not in done.output
    said: str = done.stderr.splitlines()[-1]
    return said


@pytest.mark.parametrize("name", EVERY)
def test_an_option_that_does_not_exist_is_refused(name: str) -> None:
    """With its name."""
    names, command = EVERY[name]
    rest = ["x"] if isinstance(command, click.Group) else []
    assert "--nonsense" in refused([*names, "--nonsense", *rest])


@pytest.mark.parametrize("name", EVERY)
def test_more_arguments_than_a_command_takes_are_refused(name: str) -> None:
    """None of them is passed over in silence."""
    names, command = EVERY[name]
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    if any(argument.nargs == -1 for argument in arguments):
        pytest.skip("takes any number")
    required = [f"--{p.name.replace('_', '-')}" for p in command.params if isinstance(p, click.Option) and p.required]
    given = [each for option in required for each in (option, "1")]
    assert refused([*names, *given, *["x"] * 7])


@pytest.mark.parametrize("name", EVERY)
def test_a_number_that_is_none_is_refused(name: str) -> None:
    """For each option that takes one, and said which."""
    names, command = EVERY[name]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and isinstance(parameter.type, NUMBERS) and not parameter.count:
            option = max(parameter.opts, key=len)
            for value in ("x", "", "1e", "\u00bd"):
                assert option in refused([*names, option, value])
