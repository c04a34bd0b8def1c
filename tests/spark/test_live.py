"""The figures live: each batch counted once whatever happens, windows closed by the watermark, alerts that arrive."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from zkms_spark.analysis import find_violations
from zkms_spark.errors import AnalysisError
from zkms_spark.live import alerts
from zkms_spark.live.alerts import AlertWebhook, Console, Topic
from zkms_spark.live.follow import Follower, follow
from zkms_spark.live.progress import PENDING, FollowProgress
from zkms_spark.live.settings import FollowSettings
from zkms_spark.live.slo import Slo
from zkms_spark.live.window import Window, Windows
from zkms_spark.schema import make_trail, read_trail
from zkms_spark.traffic import traffic
from zkms_spark.traffic.lag import lag

from zkms.bus import Bus
from zkms.cli.exit_codes import Exit
from zkms.server.server import Server
from zkms.trail.generate.generate import Generator

pytestmark = pytest.mark.timeout(1200)
NOON = 1_767_268_800.0
FRAME = {"topic": "users", "producer": "p", "n": 10, "size": 1000}


def published(seq: int, t: float, subs: tuple[str, ...] = ("s",)) -> dict[str, Any]:
    """Ten messages are stored."""
    return {**FRAME, "event": "published", "node": "w", "run": "w", "seq": seq, "t": t, "at": t, "subs": list(subs)}


def delivered(seq: int, t: float, latency: float, sub: str = "s") -> dict[str, Any]:
    """And arrive."""
    return {**FRAME, "event": "delivered", "node": sub, "run": sub, "sub": sub, "kind": "live"} | {
        "seq": seq,
        "t": t + latency,
        "at": t,
    }


def gap(t: float, sub: str = "s") -> dict[str, Any]:
    """A subscription says that it may have missed something."""
    return {"event": "gap", "topic": "users", "sub": sub, "node": sub, "run": sub, "t": t, "reason": "full"}


@pytest.fixture
def settings(tmp_path: Path) -> FollowSettings:
    """A state of the test's own."""
    (tmp_path / "state" / "checkpoint").mkdir(parents=True)
    return FollowSettings("a trail", tmp_path / "state", Slo(p99=1.0, lag=15), late=60.0)


class Collecting:
    """A sink that keeps what it is sent, and fails as often as it is told to."""

    name = "collecting"

    def __init__(self, failures: int = 0) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.failures = failures

    def send(self, alerts: list[dict[str, Any]]) -> None:
        """Take them, or fail."""
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("not now")
        self.alerts += alerts


# -- killed and started again ------------------------------------------------------------------------------------------


def test_a_job_killed_in_the_middle_and_started_again_has_the_batch_jobs_totals(
    spark: Any, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """kill -9 between two batches or within one; afterwards every figure of every minute is that of the report."""
    Generator(2_000, tmp_path / "recorded").run()
    state = tmp_path / "state"
    command = [sys.executable, "-m", "zkms", "trail", "follow", "--trail", tmp_path / "recorded", "--state", state]
    command += ["--once", "--files", "3", "--audit-every", "0", "--json", "--master", "local[2]"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ZKMS_")}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=inherited, stdout=log, stderr=log, start_new_session=True)
        try:
            eventually(lambda: batch_of(state) >= 0 or process.poll() is not None, timeout=400, what="a batch")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    reached = batch_of(state)
    settings = FollowSettings(str(state / "trail"), state, Slo(), files=3, audit_every=0.0, once=True)
    follow(spark, settings, [])
    assert batch_of(state) > reached, (tmp_path / "log").read_text()
    trail = read_trail(spark, str(state / "trail")).cache()
    assert json.loads((state / "progress.json").read_text())["events"] == trail.count()
    compare(trail, list(Windows(state / "windows", 60.0)))


def batch_of(state: Path) -> int:
    """The last batch that is done."""
    try:
        return int(json.loads((state / "progress.json").read_text())["batch"])
    except FileNotFoundError:
        return -1


def compare(trail: Any, windows: list[Window]) -> None:
    """Throughput, latencies and the growth of queues, minute by minute, are those of the report's jobs."""
    cube = traffic.cube(trail, 60.0).cache()
    expected = {(row.topic, row.step): row for row in traffic.throughput(cube).collect()}
    found = {(row["topic"], window.step): row for window in windows for row in window.topics()}
    for key, row in expected.items():
        if row.published or row.delivered:
            names = ("published", "delivered", "bytes")
            assert [found[key][name] for name in names] == [row[name] for name in names], key
    assert sum(row["published"] for row in found.values()) == sum(row.published for row in expected.values()) > 0
    latencies = traffic.latency(cube, ["topic", "sub", "step"]).collect()
    subscriptions = {(row["topic"], row["sub"], w.step): row for w in windows for row in w.subscriptions()}
    for row in latencies:
        mine = subscriptions[row.topic, row.sub, row.step]
        assert mine["delivered"] == row.messages
        for name in ("p50", "p90", "p99", "slowest"):
            assert math.isclose(mine[name], row[name], rel_tol=1e-9)
    waiting: dict[tuple[str, str], int] = {}
    for (topic, sub, _), row in sorted(subscriptions.items(), key=lambda item: item[0][2]):
        grown = row["stored"] - row["delivered"] - row["expired"] - row["purged"]
        waiting[topic, sub] = waiting.get((topic, sub), 0) + grown
    at_end = {(row.topic, row.sub): row for row in lag(trail, cube, 60.0).orderBy("step").collect()}
    assert {pair: max(0, value) for pair, value in waiting.items()} == {p: row.waiting for p, row in at_end.items()}


def test_a_batch_that_is_done_again_counts_once(
    spark: Any, settings: FollowSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the windows were written and before the progress was; without the window's number it doubles."""
    batch = make_trail(spark, [published(0, NOON), delivered(0, NOON, 0.1), published(10, NOON + 61)]).cache()

    def total() -> int:
        return sum(row["published"] for window in Windows(settings.state / "windows", 60.0) for row in window.topics())

    def killed(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FollowProgress, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            Follower(settings, []).take(batch, 0)
    assert total() == 20
    follower = Follower(settings, [])
    assert follower.progress.batch == -1
    follower.take(batch, 0)
    follower.take(batch, 0)
    assert total() == 20
    assert follower.progress.events == 3
    plain = Window.add

    def blind(self: Window, batch: int, cells: Any) -> bool:
        self.batch = -1
        return plain(self, batch, cells)

    monkeypatch.setattr(Window, "add", blind)
    (settings.state / "progress.json").unlink()
    Follower(settings, []).take(batch, 0)
    assert total() == 40


# -- windows -----------------------------------------------------------------------------------------------------------


def test_the_watermark_closes_windows_and_what_comes_later_still_counts(spark: Any, settings: FollowSettings) -> None:
    """Lag is judged when all trails of a minute are in; a node that comes later is counted, and said to be late."""
    told: list[float] = []
    follower = Follower(settings, [sink := Collecting()], lambda window: told.append(window.step))
    follower.take(make_trail(spark, [published(0, NOON), published(10, NOON + 50)]), 0)
    assert told == []  # its subscriber's trail may still come
    follower.take(make_trail(spark, [delivered(0, NOON, 0.1), published(20, NOON + 130)]), 1)
    assert told == [NOON]
    [window] = [window for window in follower.windows if window.step == NOON]
    [row] = window.subscriptions()
    assert (row["stored"], row["delivered"], row["waiting"]) == (20, 10, 10)
    assert sink.alerts == []
    follower.take(make_trail(spark, [delivered(10, NOON + 50, 2.0), gap(NOON + 55)]), 2)
    [row] = follower.windows.load(NOON).subscriptions()
    assert (row["delivered"], row["gaps"]) == (20, 1)
    assert follower.progress.late > 0
    assert [alert["kind"] for alert in sink.alerts] == ["gap"]
    assert follower.progress.waiting == []
    follower.finish()
    assert told == [NOON, NOON + 120]


def test_a_clock_that_is_ahead_closes_nothing(spark: Any, settings: FollowSettings) -> None:
    """One node lives a day in the future: the minutes of the others stay open."""
    now = time.time()
    follower = Follower(settings, [])
    follower.take(make_trail(spark, [published(0, now), published(10, now + 86_400)]), 0)
    assert follower.progress.closed <= now
    assert all(window.waiting is None for window in follower.windows)


def test_old_windows_go(spark: Any, tmp_path: Path) -> None:
    """The state is bounded: so are queues that nothing happens to any more, and alerts that cannot be sent."""
    settings = FollowSettings("a trail", tmp_path, late=0.0, keep=600.0)
    follower = Follower(settings, [])
    follower.take(make_trail(spark, [published(0, NOON)]), 0)
    follower.take(make_trail(spark, [published(10, NOON + 3600)]), 1)
    follower.finish()
    assert follower.windows.steps() == [NOON + 3600]
    assert [row[:3] for row in follower.progress.waiting] == [["users", "s", 10]]
    follower.progress.raise_alerts([{"id": str(number)} for number in range(PENDING + 5)], ["nowhere"])
    assert (len(follower.progress.alerts), follower.progress.dropped) == (PENDING, 5)


# -- alerts ------------------------------------------------------------------------------------------------------------


@contextmanager
def listening(answers: list[int]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An HTTP server that answers with these codes in turn, then 200; and what it was sent."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers.pop(0) if answers else 200)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def bad_minute(spark: Any) -> Any:
    """Slow, behind and with a gap."""
    events = [published(0, NOON), published(10, NOON + 1), published(20, NOON + 2), delivered(0, NOON, 5.0)]
    return make_trail(spark, [*events, gap(NOON + 3), published(30, NOON + 300, ("t",))])


def test_breaches_reach_the_console_the_webhook_and_a_topic(
    spark: Any, settings: FollowSettings, bus: Bus, zookeeper: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each once; the webhook's first answers are errors."""
    heard = bus.subscribe("alerts")
    with listening([500, 503]) as (url, bodies):
        sinks = [
            Console(),
            AlertWebhook(url, sleep=lambda _seconds: None),
            Topic("alerts", zookeeper.hosts, bus.parts.context.config.root),
        ]
        follower = Follower(settings, sinks)
        follower.take(bad_minute(spark), 0)
    kinds = ["p99", "lag", "gap"]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ALERT ")]
    assert [line.split()[1] for line in lines] == [f"{kind}:" for kind in kinds]
    assert "users: s has 20 messages waiting, more than 15" in lines[1]
    assert [[alert["kind"] for alert in body["alerts"]] for body in bodies] == [kinds] * 3
    messages = [heard.get(timeout=30) for _ in kinds]
    assert [(m.data["kind"], m.id, m.key) for m in messages if m] == [
        (alert["kind"], alert["id"], "users") for alert in bodies[-1]["alerts"]
    ]
    assert follower.progress.alerts == []


def test_a_sink_that_fails_stops_nothing_and_gets_its_alerts_later(
    spark: Any, settings: FollowSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the job was killed meanwhile: alerts wait in the state."""
    monkeypatch.setattr(alerts, "PAUSE", 0.0)
    with listening([404]) as (url, bodies):
        Follower(settings, [AlertWebhook(url)]).take(bad_minute(spark), 0)
    assert len(bodies) == 1  # 404 would be 404 again
    assert "it answered 404" in capsys.readouterr().err
    again = Follower(settings, [AlertWebhook(url)])  # nobody listens there now
    again.rest()
    assert "has not taken 3 alerts" in capsys.readouterr().err
    broken = Collecting(failures=1)
    broken.name = "webhook"
    last = Follower(settings, [broken])
    last.rest()
    assert broken.alerts == []
    last.finish()
    assert [alert["kind"] for alert in broken.alerts] == ["p99", "lag", "gap"]
    assert Follower(settings, []).progress.alerts == []


def test_an_audits_violation_is_an_alert_once(spark: Any, settings: FollowSettings, tmp_path: Path) -> None:
    """The report's audit, of what has arrived."""
    own = {"run": "s", "node": "s", "host": "h", "source": "s-1-000001", "file": 1}
    other = {"run": "w", "node": "w", "host": "h", "source": "w-1-000001", "file": 1}
    events = [
        {**own, "event": "opened", "t": NOON, "i": 0},
        {**other, "event": "opened", "t": NOON, "i": 0},
        {**own, "event": "subscribed", "sub": "s", "topic": "users", "kind": "live", "t": NOON + 1, "i": 1},
        {**published(0, NOON + 2), **other, "i": 1, "zxid": 1},
        {**published(10, NOON + 3), **other, "i": 2, "zxid": 2},
        {**delivered(10, NOON + 3, 0.1), **own, "i": 2},
        {**own, "event": "closed", "t": NOON + 9, "i": 0},
        {**other, "event": "closed", "t": NOON + 9, "i": 0},
    ]
    make_trail(spark, events).coalesce(1).write.parquet(str(tmp_path / "trail"))
    findings = find_violations(spark, str(tmp_path / "trail"))
    follower = Follower(settings, [sink := Collecting()])
    follower.audited(findings)
    follower.audited(findings)
    Follower(settings, [sink]).audited(findings)
    assert [(alert["kind"], alert["violation"], alert["sub"], alert["value"]) for alert in sink.alerts] == [
        ("audit", "missed", "s", 10)
    ]


# -- what cannot work --------------------------------------------------------------------------------------------------


def test_what_cannot_work_is_said_in_a_sentence(spark: Any, settings: FollowSettings, tmp_path: Path) -> None:
    """Before anything is counted."""
    for wrong, sentence in (
        ({"webhook": "ftp://here"}, "is no webhook"),
        ({"topic": "alerts"}, "say where it is with hosts"),
        ({"step": 0.0}, "is no span of time"),
        ({"files": 0}, "at least one file"),
    ):
        with pytest.raises(AnalysisError, match=sentence):
            FollowSettings("a trail", tmp_path, **wrong)
    Follower(settings, []).take(make_trail(spark, [published(0, NOON)]), 0)
    with pytest.raises(AnalysisError, match="has the figures of a trail"):
        Follower(FollowSettings("another", settings.state), [])
    (settings.state / "checkpoint").rmdir()
    with pytest.raises(AnalysisError, match="has lost its checkpoint"):
        Follower(settings, [])
    nowhere = FollowSettings(str(tmp_path / "nowhere"), tmp_path / "new", once=True)
    with pytest.raises(AnalysisError, match="there is no trail in"):
        follow(spark, nowhere, [])


def test_the_command_names_what_is_wrong_and_explains_itself(tmp_path: Path) -> None:
    """Exit codes as for `zkms report`."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zkms", "trail", "follow", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    done = run("--trail", "nowhere", "--state", "s")
    assert (done.returncode, "there is no directory 'nowhere'" in done.stderr) == (Exit.NO_TRAIL, True)
    done = run("--trail", ".", "--state", "s", "--webhook", "here")
    assert (done.returncode, "is no webhook" in done.stderr) == (Exit.USAGE, True)
    done = run("--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert all(word in text for word in ("--p99", "--webhook", "Examples:", "nothing is counted twice"))
