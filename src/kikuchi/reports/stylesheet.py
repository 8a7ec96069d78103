"""The looks of a report page: light and dark, on a screen and on paper."""

from __future__ import annotations

CSS = """\
:root {
  --paper: #ffffff; --card: #f6f7f9; --ink: #20262e; --soft: #6b7480; --rule: #dfe3e8;
  --accent: #00598c; --good: #00704f; --bad: #a83f00; --warn-paper: #fff3e6; --series: #0072b2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --card: #1d2127; --ink: #e4e8ec; --soft: #98a2ad; --rule: #363c45;
    --accent: #7cc0ea; --good: #5fd0a8; --bad: #ff9d5c; --warn-paper: #33231a; --series: #4fadea;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.65rem; line-height: 1.25; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .7rem; padding-top: .8rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
.sub, .note, figcaption { color: var(--soft); }
.sub { margin: 0; overflow-wrap: anywhere; }
.note { margin: 0 0 .8rem; font-size: .92rem; }
.scroll + .note { margin-top: .6rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(155px, 1fr)); gap: .75rem; }
.tile { background: var(--card); border-radius: 8px; padding: .7rem .9rem; min-width: 0; }
.tile .label { display: block; color: var(--soft); font-size: .82rem; }
.tile .value { display: block; font-size: 1.08rem; font-weight: 600; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
.tile.good .value { color: var(--good); }
.tile.bad .value { color: var(--bad); }
.warn { background: var(--warn-paper); border-left: 5px solid var(--bad); border-radius: 4px;
  padding: .7rem 1rem; margin: 1rem 0; }
.warn strong { color: var(--bad); }
.warn ul { margin: .3rem 0 0; padding-left: 1.2rem; }
.scroll { overflow-x: auto; }
.scroll, figure {  /* a shade at the right edge while there is more to scroll to */
  background: linear-gradient(to left, var(--paper) 30%, transparent) right / 2rem 100% no-repeat
    local, linear-gradient(to left, var(--rule), transparent) right / .8rem 100% no-repeat; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .32rem 1rem .32rem 0;
  border-bottom: 1px solid var(--rule); }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; vertical-align: bottom; }
td { white-space: pre-wrap; }
td:first-child { min-width: 8rem; }
td.n:first-child { min-width: 0; }
th.n, td.n { text-align: right; white-space: nowrap; }
.facts th { color: var(--soft); font-weight: 500; white-space: nowrap; padding-right: 1.6rem; }
.facts td { overflow-wrap: anywhere; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { max-width: max(100%, 34rem); height: auto; display: block; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figure svg text { font-family: inherit !important; }
.tiles + .scroll { margin-top: 1rem; }
.tables { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.tables td:first-child { min-width: 0; }
.row { display: flex; flex-wrap: wrap; gap: 1rem; }
figcaption { font-size: .88rem; margin-top: .3rem; }
pre { background: var(--card); border-radius: 6px; padding: .7rem .9rem; overflow-x: auto;
  font: .88rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; margin: .4rem 0; }
summary { cursor: pointer; color: var(--accent); }
@media print {
  :root { --paper: #fff; --card: #f6f7f9; --ink: #000; --soft: #555; --rule: #ccc;
    --good: #00704f; --bad: #a83f00; --warn-paper: #fff; --series: #0072b2; }
  main { max-width: none; padding: 0; }
  body { font-size: 11pt; }
  figure, .tile, .warn, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  pre { white-space: pre-wrap; break-inside: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 8pt; }
  th, td { padding: .18rem .6rem .18rem 0; }
  thead th, th.n, td:first-child { white-space: normal; min-width: 0; }
  figure { overflow: visible; }
  figure svg { max-width: 100%; }
  .row { display: block; }
  .row figure { display: inline-block; width: 48%; }
}
"""
