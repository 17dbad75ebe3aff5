"""Fixtures of the model tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server import ProviderServer


@pytest.fixture
def server():
    """A provider on loopback."""
    with ProviderServer() as running:
        yield running
