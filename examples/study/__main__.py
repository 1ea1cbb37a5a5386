"""Writes the pages of this folder: all schedules on one model, and predictions against published figures."""

from __future__ import annotations

from pathlib import Path

import llama3_8b
import published

HERE = Path(__file__).parent

for page in (llama3_8b, published):
    path = HERE / f"{page.__name__.replace('_', '-')}.md"
    path.write_text(page.text(), encoding="utf-8")
    print(path)
