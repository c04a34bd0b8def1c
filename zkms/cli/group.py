"""The group behind `zkms`: commands are imported when they are called, so that help and errors come at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from zkms.cli.exit_codes import MEANING, Exit
from zkms.cli.failure import Failure, as_failure, interrupt_on_sigterm, stop_writing
from zkms.errors import ZkmsError


class Lazy(NamedTuple):
    """Where a command is, and what it does in one line."""

    home: str
    help: str


class LazyGroup(click.Group):
    """Passes options that were typed before the command's name on to the command, which declares them."""

    def __init__(self, *args: Any, lazy: dict[str, Lazy], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    # -- commands ------------------------------------------------------------------------------------------------

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order of the table, which is the order in which people need them."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command."""
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name].home.partition(":")
        try:
            command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise Failure(f"'zkms {cmd_name}' needs {error.name}, which is not installed") from error
        assert isinstance(command, click.Command)  # noqa: S101 - our own table
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; what it does not know of the options before its name is an error, not ignored."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, command, rest
        known = {option for parameter in command.params for option in parameter.opts}
        passed: list[str] = []
        for option, value in ctx.params.items():
            if value in (None, False, 0, ""):
                continue
            flag = f"--{option.removesuffix('_')}"
            if flag not in known:
                raise click.UsageError(f"'zkms {name}' does not take {flag}", ctx)
            passed += [flag] * value if isinstance(value, int) else [flag, value]
        return name, command, [*passed, *rest]

    # -- help ----------------------------------------------------------------------------------------------------

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.lazy.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Document the exit codes below the rest."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANING.items()])
        super().format_epilog(ctx, formatter)

    # -- endings -------------------------------------------------------------------------------------------------

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors of the library become sentences."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except ZkmsError as error:
            raise as_failure(error) from error
        except BrokenPipeError:
            stop_writing()
            raise click.exceptions.Exit(Exit.OK) from None

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """As click's, but an interruption has the exit code that shells give it."""
        if not extra.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **extra)
        interrupt_on_sigterm()
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            code = Exit.INTERRUPTED
        sys.exit(code if isinstance(code, int) else Exit.OK)
