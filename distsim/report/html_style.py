"""The look of a page: light, dark and print, in a palette that colour-blind people can tell apart; nothing loaded."""

from __future__ import annotations

# Okabe and Ito 2008 for figures; text and ground keep a contrast of at least 7 : 1 (WCAG 2.2, 1.4.6)
CSS = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #4d4d4d; --ground: #ffffff; --panel: #f3f5f7;
  --rule: #c9ced3; --link: #005a8f; --front: #0072b2; --other: #6b6b6b; --limit: #b34700; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --soft: #bdbdbd; --ground: #14171a; --panel: #20252a;
  --rule: #454c53; --link: #7cc4f0; --front: #56b4e9; --other: #a0a0a0; --limit: #f0a050; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1.25rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--rule); }
p, ul { margin: .5rem 0; max-width: 54rem; }
a { color: var(--link); }
.soft, figcaption, caption { color: var(--soft); font-size: .9rem; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .92rem; }
.answer { font-size: 1.2rem; line-height: 1.4; margin: 1rem 0; }
.no { border-left: .4rem solid var(--limit); padding: .3rem .8rem; background: var(--panel); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: .75rem; margin: 1rem 0;
  padding: 0; max-width: none; }
.tiles > div { background: var(--panel); border-radius: .5rem; padding: .7rem .9rem; }
.tiles dt { color: var(--soft); font-size: .88rem; }
.tiles dd { margin: 0; }
.tiles .big { font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin: .7rem 0; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0 0 .3rem; }
th, td { text-align: left; vertical-align: top; padding: .28rem .45rem; border-bottom: 1px solid var(--rule);
  overflow-wrap: normal; unicode-bidi: isolate; }
th { border-bottom: 2px solid var(--rule); vertical-align: bottom; }
th.n, td.n { text-align: right; white-space: nowrap; }
td.w { white-space: nowrap; }
td.n.chosen, tr:has(.chosen) { font-weight: 650; }
figure { margin: .8rem 0; }
figure > div { overflow-x: auto; }
figure svg { display: block; max-width: 100%; min-width: 34rem; height: auto; }
.chosen { white-space: nowrap; }
figure .wide svg { max-width: none; }
svg text { fill: var(--ink); font-family: inherit; }
svg .on-light { fill: #000; } svg .on-dark { fill: #fff; }
svg .axis { stroke: var(--soft); stroke-width: 1; fill: none; }
svg .grid { stroke: var(--rule); stroke-width: 1; fill: none; }
svg .other { stroke: var(--other); stroke-width: 1.4; fill: none; }
svg .front { fill: var(--front); stroke: var(--ground); stroke-width: 1; }
svg .step { stroke: var(--front); stroke-width: 1.6; fill: none; }
svg .ring { stroke: var(--ink); stroke-width: 2; fill: none; }
svg .limit { stroke: var(--limit); stroke-width: 1.6; stroke-dasharray: 6 4; fill: none; }
.sheet svg .paper { fill: none; } .sheet svg .idle { fill: var(--panel); } .sheet svg .bar { stroke: var(--ground); }
.key { display: inline-block; min-width: 1.4em; text-align: center; font-weight: 650; border-radius: .15rem; }
figcaption .key { margin-left: .7em; }
code { font-size: .92em; }
pre { background: var(--panel); padding: .6rem .8rem; border-radius: .4rem; white-space: pre-wrap; margin: .5rem 0; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #333; --ground: #fff; --panel: #fff; --rule: #aaa; --link: #000;
    --front: #0072b2; --other: #555; --limit: #b34700; }
  @page { margin: 14mm 12mm; }
  body { font-size: 10pt; max-width: none; padding: 0; }
  nav { display: none; }
  h2 { break-after: avoid; margin-top: 1.4rem; }
  figure, tr, .tiles > div, table:not(:has(tr:nth-child(14))) { break-inside: avoid; }
  caption { break-after: avoid; }
  .tiles > div { border: 1px solid #aaa; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: .15rem .3rem; }
  th.n, td.n, td.w { white-space: normal; }
  td.s { white-space: nowrap; }
  figure svg, figure .wide svg { max-width: 100%; min-width: 0; }
  figure > div { overflow: visible; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
