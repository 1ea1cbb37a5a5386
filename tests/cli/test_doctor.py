"""`contraflow doctor`: what works on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest


def test_doctor_tells_what_works_here(contraflow: Callable[..., Any]) -> None:
    found = contraflow("doctor", "--json")
    assert found.code == 0
    assert found.json["problem"] is None
    assert found.json["attention"]["reference"] is None
    assert "gloo" in found.json["distributed"]
    assert "reference" in contraflow("doctor").out


@pytest.mark.parametrize("torch", [None, SimpleNamespace(__version__="2.9.1+cpu")])
def test_doctor_where_torch_is_missing_or_old(
    contraflow: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, torch: object
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = contraflow("doctor")
    assert found.code == 3
    assert "2.11" in found.err
    assert found.out
