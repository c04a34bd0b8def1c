"""The errors of an analysis; each says what to do.

ZkmsError
└── AnalysisError
    ├── NoSpark     no Java, or no Spark that answers
    └── NoTrail     nothing to analyse
"""

from __future__ import annotations

try:
    from zkms.errors import ZkmsError
except ModuleNotFoundError:  # inside a cluster the packaged zip carries this package alone

    class ZkmsError(Exception):  # type: ignore[no-redef]
        """Stands in for zkms' own, where zkms is not installed."""


class AnalysisError(ZkmsError):
    """An analysis that cannot be done; its text says why, and what to do."""


class NoSpark(AnalysisError):
    """Spark cannot be started, or does not answer."""


class NoTrail(AnalysisError):
    """There is no trail where one was expected, or nothing is in it."""
