"""The comparison of work queues runs; its figures are not looked at."""

from __future__ import annotations

from click.testing import CliRunner

from benchmarks.groups import CONTESTANTS, main


def test_every_contestant_does_its_work_and_has_a_line() -> None:
    """A few messages, one round."""
    result = CliRunner().invoke(main, ["--messages", "600", "--rounds", "1"])
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()[: len(CONTESTANTS)]] == list(CONTESTANTS)
    assert "group of 4 against LockingQueue" in result.output
