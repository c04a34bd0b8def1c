"""What `zkms sub` does with a message besides printing it: run a command, or post it to a URL."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import click
import msgspec

from zkms.cli.output import data_text
from zkms.message.message import Message

GRACE = 2.0
"""Seconds between asking a command to end and making it end."""
LONGEST = 200
"""Bytes of an answer, or of a command's complaint, that are kept as the reason."""
ANSWER = 64 * 1024
PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
AUTHORIZATION = "ZKMS_POST_AUTHORIZATION"


class ActionOutcome(NamedTuple):
    """What became of a message."""

    done: bool
    said: str = ""
    """Why it failed."""
    hopeless: bool = False
    """Whether it would fail every time."""


class Action(Protocol):
    """Something to do with each message."""

    def __call__(self, message: Message) -> ActionOutcome:
        """Do it, and say what came of it; never takes longer than its limit and GRACE."""


class Command:
    """Runs a command for each message, with its data on standard input: exit code 0 is success."""

    def __init__(self, line: str, limit: float, *, stdout: int | None = None) -> None:
        try:
            self.words = shlex.split(line)
        except ValueError as error:
            raise click.UsageError(f"--exec {line!r:.60}: {error}") from error
        if not self.words or shutil.which(self.words[0]) is None:
            raise click.UsageError(f"--exec: there is no command {self.words[0] if self.words else line!r}")
        self._limit = limit
        self._stdout = stdout

    def __call__(self, message: Message) -> ActionOutcome:
        """Run it. It is asked to end when its time is over, and killed if it does not."""
        try:
            process = subprocess.Popen(  # noqa: S603 - what the user asked for, and no shell
                self.words,
                stdin=subprocess.PIPE,
                stdout=self._stdout,
                env=os.environ | _variables(message),
                start_new_session=True,  # so that all it has started can be ended with it
            )
        except ValueError as error:  # a key with a NUL in it cannot be in the environment
            return ActionOutcome(False, f"cannot be handed to a command: {error}", hopeless=True)
        except OSError as error:
            return ActionOutcome(False, f"cannot be started: {error.strerror or error}")
        try:
            process.communicate(payload(message.data), timeout=self._limit)
        except subprocess.TimeoutExpired:
            _end(process)
            return ActionOutcome(False, f"not done within {self._limit:g} s, and ended")
        except BaseException:
            _end(process)
            raise
        code = process.returncode
        if code == 0:
            return ActionOutcome(True)
        return ActionOutcome(False, f"ended by signal {-code}" if code < 0 else f"exit code {code}")


def _variables(message: Message) -> dict[str, str]:
    """What a command is told of the message besides its data."""
    return {
        "ZKMS_TOPIC": message.topic,
        "ZKMS_ID": message.id,
        "ZKMS_ATTEMPT": str(message.attempts),
        "ZKMS_PRODUCER": message.producer,
        "ZKMS_SEQ": str(message.seq),
        "ZKMS_PUBLISHED_AT": repr(message.published_at),
        "ZKMS_HEADERS": msgspec.json.encode(dict(message.headers)).decode(),
        "ZKMS_KEY": message.key or "",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGTERM:
            continue  # it has ended; what it has started may not have
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


class Webhook:
    """Posts each message to a URL: 2xx is success; 4xx is hopeless, but for 408 and 429; all else is tried again."""

    def __init__(self, url: str, limit: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.UsageError(f"--post {url!r:.60}: give a URL that begins with http:// or https://")
        if parts.username is not None or parts.password is not None:
            raise click.UsageError(f"--post: others can see a command line; put credentials into {AUTHORIZATION}")
        try:
            port = parts.port
        except ValueError as error:
            raise click.UsageError(f"--post {url!r:.60}: {error}") from error
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._where = parts.hostname, port
        self._path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=PRINTABLE + "%")
        self._path = self._path.replace(" ", "%20")
        self._limit = limit

    def __call__(self, message: Message) -> ActionOutcome:
        """Post it. Redirects are not followed: a POST that becomes a GET would lose the message."""
        connection = self._connect(*self._where, timeout=self._limit)
        cut = threading.Event()
        over = threading.Timer(self._limit, _hang_up, (connection, cut))  # a time-out is for one read, not for all
        over.daemon = True
        over.start()
        try:
            connection.request("POST", self._path, payload(message.data), self._headers(message))
            response = connection.getresponse()
            answer = response.read(LONGEST)
        except TimeoutError:
            return ActionOutcome(False, f"no answer within {self._limit:g} s")
        except (OSError, HTTPException, ValueError) as error:
            said = f"no answer within {self._limit:g} s" if cut.is_set() else f"{type(error).__name__}: {error}"
            return ActionOutcome(False, said)
        finally:
            over.cancel()
            connection.close()
        if cut.is_set():  # what came before that reads like an answer, and may be half of one
            return ActionOutcome(False, f"no answer within {self._limit:g} s")
        if 200 <= response.status < 300:
            return ActionOutcome(True)
        said = f"HTTP {response.status} {response.reason}".strip()
        text = answer.decode(errors="replace").strip()
        hopeless = 400 <= response.status < 500 and response.status not in (408, 429)
        return ActionOutcome(False, f"{said}: {text}" if text else said, hopeless)

    def _headers(self, message: Message) -> dict[str, str]:
        told = {
            "Content-Type": _kind(message.data),
            "ZKMS-Topic": message.topic,
            "ZKMS-Id": message.id,
            "ZKMS-Attempt": str(message.attempts),
            "ZKMS-Published-At": repr(message.published_at),
        }
        if message.key is not None:
            told["ZKMS-Key"] = message.key
        if message.headers:
            told["ZKMS-Headers"] = msgspec.json.encode(dict(message.headers)).decode()
        # A header is ASCII on one line: everything else is %-encoded, as in a URL.
        headers = {name: quote(value, safe=PRINTABLE) for name, value in told.items()}
        if authorization := os.environ.get(AUTHORIZATION):
            headers["Authorization"] = authorization
        return headers


def _hang_up(connection: HTTPConnection, cut: threading.Event) -> None:
    cut.set()
    sock: Any = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(2)


def payload(data: Any) -> bytes:
    """A message's data as bytes: bytes and text as they are, everything else as JSON."""
    return data if isinstance(data, bytes) else data_text(data).encode()


def _kind(data: Any) -> str:
    if isinstance(data, bytes):
        return "application/octet-stream"
    return "text/plain; charset=utf-8" if isinstance(data, str) else "application/json"


def make_action(command: str | None, url: str | None, limit: float, *, as_json: bool) -> Action | None:
    """What was asked for; with --json our standard output has nothing but JSON, so a command's goes to stderr."""
    if command is not None and url is not None:
        raise click.UsageError("give either --exec or --post")
    if command is not None:
        return Command(command, limit, stdout=sys.stderr.fileno() if as_json else None)
    return None if url is None else Webhook(url, limit)
