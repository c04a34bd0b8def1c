"""Builds the zip that `spark-submit --py-files` takes: python spark/package.py [FILE]."""

from __future__ import annotations

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent


def build(target: Path) -> Path:
    """Write the zip: the package, and plotly.js for its page."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        sys.exit("plotly is not installed: pip install 'zkms[spark]'")
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((HERE / "zkms_spark").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(HERE))
        plotly = Path(spec.origin).parent / "package_data" / "plotly.min.js"
        archive.write(plotly, "zkms_spark/report/page/plotly.min.js")
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist/zkms_spark.zip")))
