"""The mutation check itself: its edits fit the sources, and it tells a test that notices from one that does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutations.__main__ import main
from mutations.mechanisms import MECHANISMS, Mechanism
from mutations.trial import SOURCES, CannotApply, Copy, mutated

QUICK = "frame CRC"


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_every_mechanism_can_still_be_switched_off(mechanism: Mechanism) -> None:
    """Its text is there once, what is left without it is Python, and the test that must fail exists."""
    ast.parse(mutated(mechanism))
    file, _, test = mechanism.test.partition("::")
    functions = {
        each.name for each in ast.walk(ast.parse((SOURCES / file).read_text())) if isinstance(each, ast.FunctionDef)
    }
    assert test.partition("[")[0] in functions


def test_every_mechanism_has_a_name_of_its_own() -> None:
    """They are chosen by name."""
    names = [mechanism.name for mechanism in MECHANISMS]
    assert sorted(set(names)) == sorted(names)


def test_an_edit_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Whether its text is gone or there twice: a mutation that is not applied would prove nothing."""
    for text in ("", "if safe: if safe:"):
        (tmp_path / "module.py").write_text(text)
        with pytest.raises(CannotApply, match="instead of once"):
            mutated(Mechanism("safety", "module.py", "if safe:", "if True:", ""), tmp_path)


def test_a_mechanism_that_is_switched_off_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    """Two of them, from the command line to the table's last word."""
    assert main([QUICK, "ledger's version"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("failed as it must") == 2
    assert "2 of 2 mechanisms are missed" in printed


def test_a_test_that_does_not_notice_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mutation of the mutation check: an edit that changes nothing."""
    real = next(mechanism for mechanism in MECHANISMS if mechanism.name == QUICK)
    monkeypatch.setattr("mutations.__main__.MECHANISMS", (real._replace(new=real.old),))
    assert main([]) == 1
    assert "STILL PASSES" in capsys.readouterr().out


def test_a_copy_that_is_broken_proves_nothing() -> None:
    """A test that could not be run, or is not there, has not failed."""
    with Copy() as copy:
        missing = copy.run(["tests/unit/test_frame.py::test_that_nobody_wrote"])
        (copy.path / "zkms" / "frame.py").write_text("def")
        broken = copy.run(["tests/unit/test_frame.py"])
    for verdict in (missing, broken):
        assert not verdict.passed
        assert not verdict.failed
