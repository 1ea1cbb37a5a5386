"""The page to explore: what its chart holds, and what a browser makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from contraflow.designer import costs
from contraflow.designer.design import Design, Preview, make, preview
from contraflow.designer.generators import GENERATORS

pytest.importorskip("plotly", reason="the page needs plotly")
from contraflow.designer.export import html


@cache
def example(generator: str = "seq1f1b", costs_name: str = "unit", microbatches: int | None = None) -> Preview:
    return preview(make(Design(generator, microbatches=microbatches)), costs.named(costs_name))


def chart(shown: Preview) -> Any:
    found = re.search(
        r'<script type="application/json" id="chart">(.*?)</script>', html.dumps(shown), re.DOTALL
    )
    assert found
    return json.loads(found[1])


def bars(shown: Preview) -> list[Any]:
    drawn = chart(shown)
    return [drawn["data"][number] for number in drawn["bars"]]


@pytest.mark.parametrize("generator", sorted(GENERATORS))
@pytest.mark.parametrize("costs_name", ["unit", "llama3-8b-h100"])
def test_bars_are_as_long_as_their_actions_take(generator: str, costs_name: str) -> None:
    shown = example(generator, costs_name)
    drawn = bars(shown)
    longest = max(bar["base"][i] + bar["x"][i] for bar in drawn for i in range(len(bar["x"])))
    unit = longest / max(use.last for use in shown.timeline.devices)
    busy = [0.0] * 4
    for bar in drawn:
        for device, length in zip(bar["y"], bar["x"], strict=True):
            busy[device] += length / unit
    assert busy == pytest.approx([use.busy for use in shown.timeline.devices], rel=1e-4)
    assert sum(len(bar["x"]) for bar in drawn) == shown.schedule.num_actions


def test_there_are_as_many_traces_for_many_actions() -> None:
    few, many = chart(example()), chart(example(microbatches=40))
    assert len(few["data"]) == len(many["data"])
    assert [bar["name"] for bar in bars(example("zb-v"))] == [
        "forward",
        "input gradient",
        "weight gradient",
    ]


def hover(shown: Preview, action: str) -> list[str]:
    [found] = [
        text for bar in bars(shown) for text in bar["hovertext"] if text.startswith(f"<b>{action}</b>")
    ]
    return re.sub(r"</?[bi]>", "", found).split("<br>")


def test_hover_knows_everything() -> None:
    # P=4 M=4 k=2 by hand: 3B0.0 starts the moment that 3F1.0 has ended, at 4.
    shown = preview(make(Design(subsequences=2)), costs.named("unit"))
    assert hover(shown, "3B0.0") == [
        "3B0.0 backward on device 3",
        "stage 3 · microbatch 0 · subsequence 0 of 2",
        "tokens 0 to 16,383 (16,384), direction down",
        "from 4 to 5, takes 1",
        "after 3F0.0, which ends at 2",
        "after 3B0.1, which ends at 3.5",
        "sends to 2B0.0 on device 2, there at 5",
        "the device holds 1 microbatches",
        "waits last for 3F1.0, the action before it",
        "on the critical path: any delay makes the whole longer",
    ]


def test_hover_has_messages_bytes_and_float_on_a_machine() -> None:
    shown = preview(make(Design("bsipipe", subsequences=2)), costs.named("llama3-8b-h100"))
    lines = hover(shown, "1F0.0")
    sent = shown.timeline.graph.actions.index(make(Design("bsipipe", subsequences=2)).program[0][0])
    assert f"input of 0F0.0 from device 0, here at {shown.timeline.arrival[sent]:.6g} s" in lines
    assert any(re.fullmatch(r"a GPU holds up to [\d.]+ GiB, [\d.]+ GiB afterwards", line) for line in lines)
    texts = [text for bar in bars(shown) for text in bar["hovertext"]]
    assert any("<i>float " in text for text in texts)
    on_path = sum("on the critical path" in text for text in texts)
    assert on_path == sum(opacity == 1 for each in chart(shown)["faded"] for opacity in each)


def test_the_critical_path_leads_from_zero_to_the_makespan() -> None:
    shown = example("bsipipe", "llama3-8b-h100")
    drawn = chart(shown)
    path = drawn["data"][drawn["path"]]
    assert path["x"] == sorted(path["x"])
    assert path["x"][0] == 0
    assert path["x"][-1] == pytest.approx(shown.makespan, rel=1e-4)


@pytest.mark.parametrize("costs_name", ["unit", "llama3-8b-h100"])
def test_memory_curves_are_the_previews_in_figures_people_read(costs_name: str) -> None:
    shown = example("seq1f1b", costs_name)
    together = chart(shown)["memory"]["together"]["curves"]["y"]
    if shown.memory is None:
        assert [max(y) for y in together] == [curve.peak for curve in shown.curves]
    else:
        peaks = [curve.peak / 2**30 for curve in shown.memory]
        assert [max(y) for y in together[:-1]] == pytest.approx(peaks, rel=1e-4)
        assert together[-1][0] == pytest.approx(80e9 / 2**30)


def test_the_page_says_what_it_rests_on_and_needs_nothing_from_elsewhere() -> None:
    text = html.dumps(example())
    assert "Unit clock: F of a whole microbatch" in text
    assert "makespan 14.25 · bubble 15.8 %" in text
    own = re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)
    assert len(own) < len(text) / 10
    assert not re.search(r"https?:|//cdn|<link|src=", own)


def test_names_cannot_break_the_page() -> None:
    schedule = make(Design("bsipipe"))
    down, up = schedule.layout.directions
    name = "</script><script>alert(1)</script>{title}"
    layout = replace(schedule.layout, directions=(replace(down, name=name), up))
    shown = preview(replace(schedule, name=name, layout=layout), costs.named("unit"))
    made = html.dumps(shown)
    assert made.count("<script") == html.dumps(preview(schedule, costs.named("unit"))).count("<script")
    assert "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;{title}</h1>" in made
    found = re.search(r'id="chart">(.*?)</script>', made, re.DOTALL)
    assert found
    [text, *_] = json.loads(found[1])["data"][0]["hovertext"]
    assert "direction &lt;/script&gt;" in text


# In a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium by Playwright: the one that PLAYWRIGHT_CHROMIUM names, one on the PATH, or Playwright's own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, which is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    path = os.environ.get("PLAYWRIGHT_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    # Chromium refuses its sandbox to root.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as running:
        if path is None and not Path(running.chromium.executable_path).exists():
            pytest.skip("needs a Chromium: set PLAYWRIGHT_CHROMIUM to the path of one")
        opened = running.chromium.launch(executable_path=path, args=arguments)
        yield opened
        opened.close()


def test_in_a_browser_hover_and_buttons_work(browser: Any, tmp_path: Path) -> None:
    shown = preview(make(Design("bsipipe", subsequences=2)), costs.named("llama3-8b-h100"))
    path = tmp_path / "page.html"
    path.write_text(html.dumps(shown), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1200, "height": 900})
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(path.as_uri())
    tab.wait_for_selector("body[data-ready=yes]")

    first = tab.locator(".barlayer .trace").first.locator("path")
    assert tab.locator(".barlayer .trace .point").count() >= shown.schedule.num_actions
    box = first.nth(0).bounding_box()
    tab.mouse.move(box["x"] + 1, box["y"] + 5)
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    text = tab.locator(".hoverlayer .hovertext")
    text.wait_for()
    assert text.text_content().startswith("0F0.0 forward on device 0")
    assert "sends to 1F0.0 on device 1" in text.text_content()

    def press(name: str) -> None:
        button = tab.get_by_role("button", name=name, exact=True)
        button.click()
        tab.wait_for_function("() => new Promise(done => setTimeout(() => done(true), 50))")

    def colours() -> Any:
        return tab.evaluate("plot.data[0].marker.color")

    def drawn() -> Any:
        return first.nth(0).evaluate("path => [path.style.fill, path.style.opacity]")

    by_kind, at_first = colours(), drawn()
    press("microbatch")
    assert colours() != by_kind
    assert drawn() != at_first
    press("kind")
    assert (colours(), drawn()) == (by_kind, at_first)

    # For each device its curve, and what a GPU has.
    lines = tab.locator(".y2 .scatterlayer .js-line, .xy2 .scatterlayer .js-line")
    assert lines.count() == 8
    height = tab.evaluate("plot._fullLayout.yaxis._length")
    press("off")
    assert lines.count() == 0
    assert tab.evaluate("plot._fullLayout.yaxis._length") > height
    press("together")
    assert lines.count() == 8
    assert tab.evaluate("plot.layout.yaxis2.title.text").endswith("GiB")
    press("apart")

    assert tab.locator(".xy .scatterlayer .js-line").count() == 0
    press("critical path")
    assert tab.locator(".xy .scatterlayer .js-line").count() == 1
    assert tab.evaluate("Math.min(...plot.data[0].marker.opacity)") < 1
    press("critical path")
    assert tab.locator(".xy .scatterlayer .js-line").count() == 0

    # Kinds by the legend.
    tab.locator(".legend .legendtoggle").first.click()
    tab.wait_for_function("() => plot.data[0].visible === 'legendonly'")
    assert tab.locator(".barlayer .trace .point").count() < shown.schedule.num_actions

    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
