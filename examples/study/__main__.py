"""Writes the pages of this folder: schedules against their bounds, on one model, and against measurements."""

from __future__ import annotations

from pathlib import Path

import bounds
import llama3_8b
import published

HERE = Path(__file__).parent

for page in (bounds, llama3_8b, published):
    path = HERE / f"{page.__name__.replace('_', '-')}.md"
    path.write_text(page.text(), encoding="utf-8")
    print(path)
