"""The report's style: colours that also the colour-blind tell apart, two widths, dark mode, print.

The brokers' colours are those of Okabe and Ito.
"""

STYLE = """
:root{--bg:#fbfbf9;--card:#fff;--ink:#1d2327;--soft:#5b656d;--line:#dfe3e6;--grid:#e7eaec;
--good:#00785a;--good-bg:#e4f4ee;--bad:#b3261e;--bad-bg:#fbe9e7;--bar:#7d8b96;--none:#eceff1;
--ok:#a9d5c6;--some:#e9a23b;--fail:#c8401f;--iso:#35424c;--heat:#0b4f8a;
--b0:#0072b2;--b1:#e69f00;--b2:#009e73;--b3:#cc79a7;--b4:#56b4e9;--b5:#d55e00;--b6:#c9b800;
--rest:#a3adb5;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--bg:#14181b;--card:#1c2226;--ink:#e7eaec;--soft:#a0abb4;
--line:#333c43;--grid:#2b3339;--good:#5fd0ab;--good-bg:#12352b;--bad:#ff9b90;--bad-bg:#45201c;
--bar:#82909b;--none:#2a3238;--ok:#2f6d5a;--some:#d9942f;--fail:#e2603f;--iso:#dfe5ea;
--heat:#63b3f5;--b0:#3d9bd9;--b3:#d88fb8;--b6:#d8c92e;--rest:#6d7881}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
overflow-wrap:anywhere}
main{max-width:1100px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:30px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:21px;margin:44px 0 10px;letter-spacing:-.005em}
h3{font-size:17px;margin:0}
p{margin:6px 0}
.when,.about{color:var(--soft);margin:2px 0 8px}
.about{font-size:14px}
.verdict{display:flex;gap:14px;align-items:flex-start;border-radius:10px;padding:14px 18px;
margin:18px 0;font-weight:600;font-size:17px}
.verdict svg{flex:none;width:26px;height:26px;margin-top:0}
.verdict.good{background:var(--good-bg);color:var(--good)}
.verdict.bad{background:var(--bad-bg);color:var(--bad)}
.verdict.unknown{background:var(--none);color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(5,1fr);gap:10px;margin:16px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}
.tile b{display:block;font-size:23px;line-height:1.25;white-space:nowrap;
font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:14px}
.tile.bad b{color:var(--bad)}
.figure,.card{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:16px 18px 14px;margin:14px 0}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:14px;margin:14px 0}
.pair>*{margin:0}
.multiples{display:grid;grid-template-columns:1fr 1fr;gap:14px}
.multiples .figure{margin:0}
svg{display:block;width:100%;height:auto;font-family:inherit;margin-top:6px}
svg.narrow{display:none}
svg text{fill:var(--ink)}
svg .tick{fill:var(--soft);font-variant-numeric:tabular-nums}
svg .label{fill:var(--soft)}
svg .value{font-variant-numeric:tabular-nums}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
svg .mean{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:5 4}
svg .area,svg .dot{fill:var(--c)}
svg .area{fill-opacity:.86;stroke:var(--card);stroke-width:.6}
svg .bar,.key.bar{fill:var(--bar);background:var(--bar)}
svg .failed,.key.failed{fill:var(--fail);background:var(--fail)}
svg .ok,.key.ok{fill:var(--ok);background:var(--ok)}
svg .some,.key.some{fill:var(--some);background:var(--some)}
svg .none,.key.none{fill:var(--none);background:var(--none)}
svg .isolated,.key.isolated{fill:var(--iso);background:var(--iso)}
svg .fault{fill:var(--c);fill-opacity:.2;stroke:var(--c);stroke-width:1}
svg .fault-label{font-weight:600}
svg .shade{fill:var(--c);fill-opacity:.08;stroke:var(--c);stroke-opacity:.5;stroke-width:1;
stroke-dasharray:3 3}
svg .heat,.key.heat{fill:var(--heat);background:var(--heat)}
.b0{--c:var(--b0)}.b1{--c:var(--b1)}.b2{--c:var(--b2)}.b3{--c:var(--b3)}.b4{--c:var(--b4)}
.b5{--c:var(--b5)}.b6{--c:var(--b6)}.rest{--c:var(--rest)}
.p50_ms,.key-p50_ms{--c:var(--b2)}.p90_ms,.key-p90_ms{--c:var(--b0)}
.p99_ms,.key-p99_ms{--c:var(--b5)}.max_ms,.key-max_ms{--c:var(--rest)}
svg .max_ms{stroke-width:1.2;stroke-dasharray:3 3}svg .p99_ms{stroke-width:2.4}
.h1{opacity:.12}.h2{opacity:.22}.h3{opacity:.34}.h4{opacity:.46}.h5{opacity:.6}.h6{opacity:.74}
.h7{opacity:.88}.h8{opacity:1}
.legend,.faults{list-style:none;display:flex;flex-wrap:wrap;gap:3px 18px;padding:0;margin:8px 0 2px;
font-size:14px;color:var(--soft)}
.key{display:inline-block;width:13px;height:13px;border-radius:3px;background:var(--c);
margin-right:6px;vertical-align:-1.5px}
.mean-key{height:0;border-radius:0;border-top:2px dashed var(--ink);background:none;
vertical-align:4px}
.number{display:inline-block;min-width:20px;text-align:center;border-radius:3px;padding:0 4px;
color:var(--ink);border:1px solid var(--c)}
.reading{font-size:16px;margin-top:8px;padding-left:12px;border-left:3px solid var(--b0)}
.scroll{overflow-x:auto;margin:8px 0}
table{border-collapse:collapse;width:100%;font-size:15px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600;font-size:14px}
th:first-child,td:first-child{text-align:left;white-space:normal;min-width:6em}
td.text,th.text{text-align:left}
td.bad{color:var(--bad);font-weight:700}td.good{color:var(--good);font-weight:700}
code,pre{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:14px}
pre{background:var(--none);border-radius:8px;padding:12px 14px;white-space:pre-wrap;margin:8px 0}
details{margin:8px 0;font-size:15px}summary{cursor:pointer;color:var(--soft)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:8px 0;font-size:15px}
dt{color:var(--soft)}dd{margin:0}
.notes{color:var(--soft);font-size:15px;padding-left:20px}
footer{color:var(--soft);font-size:14px;margin-top:40px}
@media screen and (max-width:980px){.pair,.multiples{grid-template-columns:minmax(0,1fr)}
svg.half{max-width:620px}}
@media screen and (max-width:799px){
main{padding:18px 12px 40px}h1{font-size:24px}h2{margin-top:32px}
.figure,.card{padding:12px 10px}svg.wide,svg.half{display:none}
svg.narrow{display:block;max-width:560px}
.tiles{grid-template-columns:1fr 1fr;gap:8px}.tile{padding:8px 10px}
.tile b{font-size:20px}
dl{grid-template-columns:1fr}dd{margin-bottom:6px}
.stack thead{display:none}.stack tr{display:grid;grid-template-columns:1fr 1fr;padding:8px 0;
border-bottom:1px solid var(--line)}.stack td{display:flex;justify-content:space-between;gap:8px;
border:0;padding:2px 6px;white-space:normal;min-width:0}
.stack td:first-child{grid-column:1/-1;font-weight:600}
.stack td.text{grid-column:1/-1}.stack td:not(.text){white-space:nowrap}
.stack td::before{text-align:left}
.stack td:not(:first-child)::before{content:attr(data-name);color:var(--soft)}}
@media print{:root{--bg:#fff;--card:#fff}body{font-size:12px}main{max-width:none;padding:0}
svg.wide,svg.half{display:block}svg.narrow{display:none}.figure,.card,tr,.verdict{break-inside:avoid}
h2{break-after:avoid}.pair{grid-template-columns:1fr 1fr}*{print-color-adjust:exact;
-webkit-print-color-adjust:exact}details::details-content{content-visibility:visible}}
@page{margin:14mm}
"""
