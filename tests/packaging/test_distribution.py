"""The wheel and the sdist: build, install into a clean environment, import."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, built from the tree as it is."""
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, PROJECT, cwd=target)
    return target


def test_the_wheel_holds_the_packages_and_nothing_that_would_litter_site_packages(distributions: Path) -> None:
    """Only zkms, zkms_cleaner, zkms_spark and the metadata come to a user's site-packages."""
    (wheel,) = distributions.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"zkms", "zkms_cleaner", "zkms_spark"}
    assert {"zkms/py.typed", "zkms_cleaner/py.typed", "zkms_spark/py.typed", "zkms_spark/report/page/style.css"} <= set(
        names
    )


def test_the_sdist_can_build_and_test_itself(distributions: Path) -> None:
    """What `make test` needs is in the sdist, and no virtual environment or build output."""
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "pyproject.toml", "README.md", "LICENSE", "tests/conftest.py"} <= names
    assert not [name for name in names if name.startswith((".venv/", "dist/", "build/"))]


def test_the_wheel_installs_into_a_clean_environment_and_works_with_its_core_dependencies_alone(
    distributions: Path, tmp_path: Path
) -> None:
    """`pip install zkms`: the imports, the commands, and a clear word where an extra is needed."""
    (wheel,) = distributions.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", PROJECT / "constraints.txt", wheel, cwd=tmp_path)
    run(python, "-c", "import zkms, zkms_cleaner; zkms.connect, zkms_cleaner.Cleaner", cwd=tmp_path)
    installed = run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path)
    assert {line.split("==")[0] for line in installed.splitlines()} <= {
        "zkms", "kazoo", "click", "msgspec", "pip", "setuptools"
    }  # fmt: skip
    assert run(tmp_path / "env" / "bin" / "zkms", "--version", cwd=tmp_path).strip().endswith("0.1.0")
    assert "--dry-run" in run(tmp_path / "env" / "bin" / "zkms-cleaner", "--help", cwd=tmp_path)
    server = subprocess.run(
        [tmp_path / "env" / "bin" / "zkms", "server", "--port", "22181"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert server.returncode == 1
    assert "zkms[server]" in server.stderr
