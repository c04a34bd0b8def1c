"""Tests of faults. The repository's package `faults`, whose programs they use, is found under the same name."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
