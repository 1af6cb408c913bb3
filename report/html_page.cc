#include "report/html_page.h"

namespace lastflop {

const char kPageStyle[] = R"css(
:root {
  color-scheme: light dark;
  --bg: #f6f7f9; --card: #ffffff; --ink: #1a1f27; --muted: #5f6b7a; --line: #e2e6eb;
  --good: #0a7d4d; --bad: #c0352b; --unsure: #9a5b00; --accent: #2f62d0; --soft: #eef2f7;
  --on-cat: #ffffff;
  --cat-moe: #2f62d0; --cat-attention: #d0662f; --cat-dense: #0a8f7a; --cat-collective: #a83a8a;
  --cat-dequant: #b8322e; --cat-router: #6d53c4; --cat-norm: #7a8594; --cat-embedding: #4f7f2a;
  --cat-lm_head: #8a6a1c; --cat-sampling: #2c7fa3; --cat-host: #525b68; --cat-other: #98702f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #101317; --card: #181c22; --ink: #e7eaef; --muted: #9aa5b4; --line: #2b323b;
    --good: #4cc78d; --bad: #ff7d6e; --unsure: #efb558; --accent: #86a9ff; --soft: #20262e;
    --on-cat: #0f1216;
    --cat-moe: #86a9ff; --cat-attention: #f0945f; --cat-dense: #45c9b2; --cat-collective: #e07fc4;
    --cat-dequant: #f0706a; --cat-router: #b19cf5; --cat-norm: #a3adba; --cat-embedding: #94c46a;
    --cat-lm_head: #d4ae58; --cat-sampling: #6fc0e2; --cat-host: #818c9b; --cat-other: #d6a75f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1600px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 22px; line-height: 1.3; margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 4px; }
.question { color: var(--muted); margin: 4px 0 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.answer {
  margin: 20px 0; padding: 18px 22px; background: var(--card); border: 1px solid var(--line);
  border-left: 5px solid var(--accent); border-radius: 8px; font-size: 19px; line-height: 1.4;
}
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 18px 22px; margin: 0 0 16px;
}
.note { color: var(--muted); font-size: 13px; margin: 0 0 10px; max-width: 95ch; }
.scroll { overflow-x: auto; margin: 0 -22px; padding: 0 22px; }
table { border-collapse: collapse; font-size: 13px; width: 100%; font-variant-numeric: tabular-nums; }
th {
  text-align: left; font-weight: 500; color: var(--muted); padding: 6px 12px 6px 0;
  border-bottom: 1px solid var(--line); vertical-align: bottom;
}
td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: none; }
td, td.num { overflow-wrap: break-word; }
td.key, .unit { white-space: nowrap; }
th.num, td.num { text-align: right; }
.wide { min-width: 22ch; }
td small { display: block; color: var(--muted); font-weight: 400; white-space: normal; min-width: 24ch; }
.strong { font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); } .unsure { color: var(--unsure); }
.muted { color: var(--muted); }
.pill { background: var(--soft); border-radius: 10px; padding: 1px 9px; white-space: nowrap; }
ul { margin: 6px 0 0; padding-left: 20px; } li { margin: 2px 0; overflow-wrap: anywhere; }
.chart { margin: 8px 0 14px; }
.chart svg { display: block; width: 100%; height: auto; font-size: 12px; }
.legend { color: var(--muted); font-size: 12px; margin: -6px 0 12px; }
footer { color: var(--muted); font-size: 12px; margin-top: 20px; }
@media print { body { background: none; } section, .answer { break-inside: avoid; } }
)css";

// Each chart is drawn by Vega in a box of its own and takes the place of the plain SVG only when it
// is there. Colours are the page's variables, read anew when the scheme changes.
const char kChartScript[] = R"js(
(function () {
  if (typeof vega === "undefined") return;
  function colors(key, value) {
    var name = typeof value === "string" && /^var\((--[a-z_-]+)\)$/.exec(value);
    return name
      ? getComputedStyle(document.documentElement).getPropertyValue(name[1]).trim()
      : value;
  }
  function draw(chart) {
    var plain = chart.querySelector("svg.plain");
    var box = chart.querySelector(".vega");
    try {
      var spec = JSON.parse(chart.querySelector("script").textContent, colors);
      spec.width = chart.clientWidth - 8;
      box.replaceChildren();
      var view = new vega.View(vega.parse(spec), {renderer: "svg", container: box, hover: true});
      view.runAsync().then(
        function () { plain.style.display = "none"; },
        function () { box.replaceChildren(); plain.style.display = ""; });
    } catch (error) {
      box.replaceChildren();
      plain.style.display = "";
    }
  }
  function drawAll() { document.querySelectorAll(".chart").forEach(draw); }
  drawAll();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  var timer;
  window.addEventListener("resize", function () {
    clearTimeout(timer);
    timer = setTimeout(drawAll, 150);
  });
})();
)js";

}  // namespace lastflop
