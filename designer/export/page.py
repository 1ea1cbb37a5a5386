"""The page around an interactive chart: what shows it, its buttons, and what they do. See html.py for the chart."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --dim: #5b6672; --paper: #fff; --line: #d3d9e0; --on: #e3ebf5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --dim: #9aa6b2; --paper: #14191f; --line: #36404b; --on: #2a3847; }
}
body { margin: 1.2rem 1.6rem; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0; }
p { margin: .15rem 0; }
.dim, caption, th { color: var(--dim); font-weight: normal; }
#controls { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; margin: .8rem 0 .2rem; }
fieldset { border: 0; margin: 0; padding: 0; display: flex; align-items: baseline; gap: .2rem; }
legend { float: left; color: var(--dim); padding: 0 .4rem 0 0; }
button { font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: 4px;
  padding: .1rem .6rem; cursor: pointer; }
button[aria-pressed=true] { background: var(--on); border-color: var(--dim); }
table { border-collapse: collapse; margin-top: 1rem; }
caption { text-align: left; }
td, th { text-align: right; padding: .1rem 0 .1rem 1.4rem; border-bottom: 1px solid var(--line); }
td:first-child, th:first-child { padding-left: 0; }
"""

SCRIPT = """
"use strict";
const page = JSON.parse(document.getElementById("chart").textContent);
const plot = document.getElementById("plot");
const state = { colour: "kind", memory: "apart", critical: false, outline: 0, labels: false };
const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function theme() {
  const changes = { "font.color": ink("--ink"), "hoverlabel.bgcolor": ink("--paper"),
    "hoverlabel.bordercolor": ink("--dim"), "hoverlabel.font.color": ink("--ink"),
    "modebar.color": ink("--dim"), "modebar.activecolor": ink("--ink") };
  for (const axis of ["xaxis", "yaxis", "yaxis2"]) changes[axis + ".gridcolor"] = ink("--line");
  return changes;
}

// Colours and strength of all bars, and of their keys in the legend.
const painted = [...page.bars, ...page.keys];

function paint() {
  const colours = page.colours[state.colour], full = painted.map(() => 1);
  return { "marker.color": [...colours, ...colours.map(each => each[0])],
    "marker.opacity": state.critical ? [...page.faded, ...full].slice(0, painted.length) : full };
}

// Lines between bars and words on them cost time and help only where bars are wide. Answers whether that has changed.
function detail(low, high, pixels) {
  const width = page.shortest / (high - low) * pixels, outline = width > 3 ? 1 : 0, labels = width > 26 || page.few;
  const same = outline === state.outline && labels === state.labels;
  Object.assign(state, { outline, labels });
  return !same;
}

function lines() {
  return { "marker.line.width": state.outline, "marker.line.color": ink("--paper"),
    text: state.labels ? page.names : page.bars.map(() => null) };
}

function zoomed() {
  const axis = plot._fullLayout.xaxis;
  if (detail(...axis.range, axis._length)) Plotly.restyle(plot, lines(), page.bars);
}

function memory() {
  const shown = state.memory !== "off", view = page.memory[shown ? state.memory : "apart"];
  return Plotly.update(plot, { ...view.curves, visible: shown },
    { ...view.layout, "yaxis2.visible": shown, "yaxis.domain": shown ? page.domain : [0, 1] }, page.curves);
}

// What is undefined stays as it is.
function critical() {
  const changes = paint();
  for (const key in changes) changes[key].push(undefined);
  const visible = [...painted.map(() => undefined), state.critical];
  return Plotly.restyle(plot, { ...changes, visible }, [...painted, page.path]);
}

const actions = { colour: () => Plotly.restyle(plot, paint(), painted), memory, critical };

for (const button of document.querySelectorAll("#controls button")) {
  button.addEventListener("click", () => {
    const { what, value } = button.dataset;
    state[what] = value === undefined ? !state[what] : value;
    for (const other of document.querySelectorAll(`#controls button[data-what=${what}]`)) {
      other.setAttribute("aria-pressed", value === undefined ? state[what] : other === button);
    }
    actions[what]();
  });
}

// All that is known of the window goes in before the first drawing: each costs as much as that.
function set(target, path, value) {
  const keys = path.split("."), last = keys.pop();
  for (const key of keys) target = target[key] ??= {};
  target[last] = value;
}
for (const [path, value] of Object.entries(theme())) set(page.layout, path, value);
detail(...page.layout.xaxis.range, plot.clientWidth - page.layout.margin.l - page.layout.margin.r);
const drawn = lines();
page.bars.forEach((trace, index) => {
  set(page.data[trace], "marker.line", { width: drawn["marker.line.width"], color: drawn["marker.line.color"] });
  page.data[trace].text = drawn.text[index];
});
Plotly.newPlot(plot, page.data, page.layout, page.config).then(() => {
  plot.on("plotly_relayout", changes => { if (Object.keys(changes).some(key => key.startsWith("xaxis"))) zoomed(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    Plotly.update(plot, lines(), theme(), page.bars);
  });
  document.body.dataset.ready = "yes";
});
"""

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p class="dim">{shape}</p>
<p>{figures}</p>
<div id="controls">{controls}</div>
<noscript><p>The chart needs JavaScript, which is all in this file.</p></noscript>
{key}
<div id="plot" style="height: {height}px"></div>
<p class="dim">{caption}</p>
{table}
<script type="application/json" id="chart">{chart}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""
