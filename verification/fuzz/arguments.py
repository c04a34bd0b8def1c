"""Fuzzes command lines, environment, selectors and settings: errors are a sentence, never a traceback."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import click
import msgspec

from verification.fuzz.target import Target, text_of
from zkms.checks import check_seconds
from zkms.cli import COMMANDS, main
from zkms.cli.connection import read_auth, read_tls
from zkms.cli.failure import as_failure
from zkms.cli.messages.pub import _headers, _moment, _parse
from zkms.config import Config
from zkms.errors import InvalidArgument, ZkmsError
from zkms.message.frame import pack
from zkms.publish.audience import fits
from zkms.security import parse_auth
from zkms.subscribe.options import check_where

UNSAFE = "\0"
"""A character that no argument of a process can contain."""
_ARGUMENT = re.compile(r"""'([^']*)'|"([^"]*)"|(\S+)""")
"""As a shell takes a line apart, but for quotes in the middle of a word; many times as fast as shlex."""
_NO_NAME = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that stand for no byte: what the environment holds has none of them."""
_CONTEXT = click.Context(main)
for _name in COMMANDS:  # now, while what is imported is watched by a guide
    main.get_command(_CONTEXT, _name)


def check_command(data: bytes) -> None:
    """A command line is understood, or refused with a sentence and an exit code; nothing is carried out."""
    text = text_of(data)
    if UNSAFE in text:
        return
    arguments = [single or double or word for single, double, word in _ARGUMENT.findall(text)]
    try:
        with redirect_stdout(io.StringIO()):
            _understand(main, "zkms", arguments)
    except click.exceptions.Exit as ended:
        assert isinstance(ended.exit_code, int)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(file=shown)
        assert error.exit_code > 0
        assert error.format_message() in shown.getvalue()
    except click.Abort:
        pass


def _understand(command: click.Command, name: str, arguments: list[str], parent: click.Context | None = None) -> None:
    context = command.make_context(name, list(arguments), parent=parent)
    with context:
        if isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            if not rest:
                return
            found, inner, rest = command.resolve_command(context, rest)
            if inner is not None:
                _understand(inner, found or "", rest, context)


def check_where_(data: bytes) -> None:
    """A selector is refused, or finds out for any headers whether they fit."""
    try:
        where = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    try:
        checked = check_where(where)
    except InvalidArgument as error:
        assert len(str(error)) < 1000
        return
    for headers in (None, {}, {"kind": "new"}):
        assert fits(headers, checked) in (True, False) if checked is not None else where is None


def check_settings(data: bytes) -> None:
    """Settings of a bus, and what the environment says of credentials."""
    text = text_of(data)
    first, _, rest = text.partition("\n")
    _expect(InvalidArgument, lambda: Config(hosts=first, root=rest or "/zkms"))
    _expect(InvalidArgument, lambda: Config(client_id=first, producer=rest or None))
    _expect(InvalidArgument, lambda: parse_auth([(first, rest)]))
    _expect(InvalidArgument, lambda: parse_auth(text))  # type: ignore[arg-type]
    _expect(click.ClickException, lambda: read_auth({"ZKMS_AUTH": text}))
    if UNSAFE not in text:
        name = "" if _NO_NAME.search(text) else os.fsdecode(os.fsencode(text))
        _expect(click.ClickException, lambda: read_auth({"ZKMS_AUTH_FILE": name}))
        _expect(InvalidArgument, lambda: read_tls({"ZKMS_TLS_CA": name}))
    _expect(click.UsageError, lambda: _moment(text))
    _expect(click.UsageError, lambda: _headers((first, rest)))
    _expect(click.UsageError, lambda: _parse(text))
    try:
        number: Any = float(text)
    except ValueError:
        number = text
    _expect(InvalidArgument, lambda: check_seconds("timeout", number))
    _expect(InvalidArgument, lambda: pack(text, first, {first: rest}))


def _expect(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        if isinstance(error, ZkmsError):
            assert as_failure(error).format_message()


LINES = (
    *("pub users 42 --key 42 --wait 2", "pub users '{\"id\": 42}' --json-data --header a=b", "--json topics"),
    *("sub users --name audit --count 3 --timeout 1.5 --drain", "sub jobs --group workers --exec 'cat -'"),
    *("queues --topic users", "peek audit users --limit 3", "purge audit users --yes --dry-run", "groups", "clients"),
    *("dead list --subscription workers --limit 5", "dead show p:17", "dead requeue --all", "dead purge p:17 --yes"),
    *("cleaner --interval 3 --once --dry-run --metrics-port 9000", "server --nodes 3 --data /tmp/x", "doctor"),
    *("trail export --trail /tmp/t --to /tmp/o", "trail generate --events 100 --out /tmp/o --faults lost=3 --skew 0.5"),
    *("trail follow --trail /tmp/t", "report --trail /tmp/t", "bench --suite targets", "top --interval 2", "demo"),
    *("pub users x --at 2026-11-16T12:00:00+01:00 --ttl 5 --priority 9 --id a --if-nobody drop", "--version", "-h"),
)
TARGETS = (
    Target(
        "command lines",
        check_command,
        tuple(line.encode() for line in LINES),
        (
            *(name.encode() + b" " for name in COMMANDS),
            *(
                b" --limit ",
                b" --count ",
                b" --timeout ",
                b" nan ",
                b" inf ",
                b" -1 ",
                b" 1e999 ",
                b" '' ",
                b" -- ",
                b" -",
            ),
            *(b" --root ", b" --hosts ", b" --json ", b" -vvv ", b" = ", b"'", b'"', b" ../.. ", b"\xf0\x9f\x98\x80"),
        ),
        weight=0.5,
    ),
    Target(
        "selectors",
        check_where_,
        (b'{"kind":"new"}', b'{"kind":["new","old"],"a":"b"}', b"{}", b"[]", b"null"),
        (b'{"', b'":', b'["', b'"]', b"null", b"[" * 1500, b'"kind"'),
    ),
    Target(
        "settings and environment",
        check_settings,
        (
            b"zk1:2181,zk2:2181\n/zkms",
            b"[::1]:2181",
            b"digest:ann:secret",
            b"host\n/a/b",
            b"1.5",
            b"2026-11-16T12:00:00Z",
        ),
        (b":", b",", b"[", b"]", b"/", b"\n", b"nan", b"inf", b"1e400", b"\xed\xa0\x80", b"digest:", b"::", b"%"),
    ),
)
