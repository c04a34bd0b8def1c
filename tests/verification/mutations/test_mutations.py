"""The mutation check itself: its edits fit the sources, and it tells a test that notices from one that does not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from verification.mutations.__main__ import main
from verification.mutations.mechanisms import MECHANISMS, Mechanism
from verification.mutations.trial import SOURCES, CannotApply, Copy, mutated

SELECTED = ("frame CRC", "ledger's version in every ack")


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


@pytest.mark.timeout(900)  # pytest within pytest, with a server of its own
def test_the_check_tells_a_test_that_notices_from_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two mechanisms that are missed, and a mutation of the check itself: an edit that changes nothing."""
    quick, other = (next(each for each in MECHANISMS if each.name == name) for name in SELECTED)
    nothing = quick._replace(name="nothing", new=quick.old)
    monkeypatch.setattr("verification.mutations.__main__.MECHANISMS", (quick, other, nothing))
    assert main([]) == 1
    printed = capsys.readouterr().out
    outcomes = re.findall(r"failed as it must|STILL PASSES", printed)
    assert outcomes == ["failed as it must", "failed as it must", "STILL PASSES"]
    assert "2 of 3 mechanisms are missed" in printed


@pytest.mark.timeout(900)
def test_a_copy_that_is_broken_proves_nothing() -> None:
    """A test that could not be run has not failed."""
    with Copy() as copy:
        (copy.path / "zkms" / "message" / "frame.py").write_text("def")
        verdict = copy.run(["tests/message/test_frame.py"])
    assert not verdict.passed
    assert not verdict.failed
