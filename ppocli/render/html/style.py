"""The style sheet of a page. ASCII only; text has a contrast of at least 4.5 to 1 in light and dark.

The colours of charts are those of Okabe and Ito (2008), which differ for every common colour vision.
"""

from __future__ import annotations

_LIGHT = """
--page:#f5f6f8;--card:#ffffff;--line:#d9dee5;--grid:#e6e9ee;--text:#1b2026;--soft:#556070;--link:#0a58a8;
--bad:#9f1f1a;--bad-bg:#fdeceb;--warn:#714600;--warn-bg:#fff3da;--good:#0a5f3c;--good-bg:#e4f5ec;
--info:#1c4b85;--info-bg:#e7f0fb;
--bar:#8b9bb0;--out:#3c4a5d;--band:#eef3f8;--plus:#0072b2;--minus:#d55e00;--mark:#8a3b86;--limit:#9f1f1a;
"""

_DARK = """
--page:#12151a;--card:#1a1e25;--line:#343b46;--grid:#2a303a;--text:#e7eaee;--soft:#a5afbc;--link:#85bdff;
--bad:#ffa19b;--bad-bg:#3c1c1e;--warn:#f3c46b;--warn-bg:#352a10;--good:#7fdcae;--good-bg:#123122;
--info:#9cc6ff;--info-bg:#172a42;
--bar:#71829a;--out:#c5d0dd;--band:#202733;--plus:#56b4e9;--minus:#f08b3c;--mark:#d9a1d6;--limit:#ffa19b;
"""

STYLE = (
    ":root{color-scheme:light dark;" + _LIGHT.replace("\n", "") + "}"
    "@media (prefers-color-scheme:dark){:root{" + _DARK.replace("\n", "") + "}}"
    "@media print{:root{color-scheme:light;" + _LIGHT.replace("\n", "") + "--page:#ffffff}}"
    """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
overflow-wrap:anywhere}
header,main,footer{max-width:72rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2rem}
h1{font-size:1.65rem;line-height:1.25;font-weight:650;margin:.1rem 0 .25rem;letter-spacing:-.01em}
h2{font-size:1.15rem;font-weight:650;margin:2.25rem 0 .75rem}
h3{font-size:.95rem;font-weight:650;margin:0}
h4{font-size:.875rem;font-weight:600;margin:1.1rem 0 0}
p{margin:.35rem 0}
a{color:var(--link)}
code,.name,dfn{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
font-size:.93em;font-style:normal}
.name dfn,.name .name{font-size:1em}
.kind{color:var(--soft);font-size:.85rem;margin:0}
.soft{color:var(--soft)}
.small{font-size:.85rem}
.verdict{display:flex;flex-wrap:wrap;gap:.35rem .75rem;align-items:baseline;margin:1rem 0;padding:.7rem 1rem;
border-radius:.5rem;border-left:.3rem solid currentColor}
.verdict b{font-size:1.05rem}
.bad{color:var(--bad);background:var(--bad-bg)}
.warn{color:var(--warn);background:var(--warn-bg)}
.good{color:var(--good);background:var(--good-bg)}
.info{color:var(--info);background:var(--info-bg)}
nav{margin:.75rem 0 0;font-size:.9rem;display:flex;flex-wrap:wrap;gap:.25rem 1rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:1rem 0 0;
padding:0}
.figures>div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem}
.figures dt{font-size:.8rem;color:var(--soft)}
.figures dd small{display:block;font-size:.75rem;font-weight:400;color:var(--soft)}
.figures dd{margin:0;font-size:1.3rem;font-weight:600;font-variant-numeric:tabular-nums;line-height:1.35}
.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:1rem 1.1rem;
margin:0 0 1rem}
.card>h3+*{margin-top:.5rem}
.card>p:first-child{margin-top:0}.card>p:last-child{margin-bottom:0}
.two{columns:2 27rem;column-gap:1rem}
.two>.card{break-inside:avoid}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr));gap:1rem;
align-items:start;
margin-bottom:1rem}
.grid>.card{margin:0;min-width:0}
.wide{grid-column:1/-1}
figure{margin:0}
figcaption p{color:var(--soft);font-size:.85rem}
svg{display:block;width:100%;overflow:visible;margin:.75rem 0 .25rem}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--soft);
font-variant-numeric:tabular-nums}
svg text.strong{fill:var(--text)}
svg text.limit{fill:var(--limit)}
svg text.mark{fill:var(--mark)}
.plot{display:grid;grid-template-columns:3.6rem minmax(0,1fr);gap:.5rem}
svg text{paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}
svg .more{fill:var(--soft)}
stop.in{stop-color:var(--bar)}stop.out{stop-color:var(--out)}
.bar{fill:var(--bar)}.bar.out{fill:var(--out)}
.bar.plus{fill:var(--plus)}.bar.minus{fill:var(--minus)}
.bar.kept{fill-opacity:.38}
.bar:hover,.dot:hover{stroke:var(--text);stroke-width:1.5}
.dot{fill:var(--plus);stroke:var(--card);stroke-width:1.5}
.band{fill:var(--band)}
.grid-line,.axis{stroke:var(--grid);stroke-width:1;shape-rendering:crispEdges}
.axis{stroke:var(--soft)}
line.clip{stroke:var(--text);stroke-width:1.25}
line.limit{stroke:var(--limit);stroke-width:1.25}
line.mark{stroke:var(--mark);stroke-width:1.25;stroke-dasharray:4 3}
.track{stroke:var(--grid);stroke-width:1}
.trend{fill:none;stroke:var(--plus);stroke-width:1.75;stroke-linecap:round;stroke-linejoin:round;
vector-effect:non-scaling-stroke}
.trend.thin{stroke-width:1}
svg.plane{margin:0}
.dot.bad{fill:var(--limit)}
line.level{stroke-dasharray:6 3}
.lost{fill:var(--limit);transform:translateX(-1.5px)}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1rem;font-size:.85rem;color:var(--soft);list-style:none;
margin:.25rem 0;
padding:0}
.legend svg{display:inline-block;width:.8rem;height:.8rem;margin:0 .4rem 0 0;vertical-align:-.08rem}
table{border-collapse:collapse;width:100%;font-size:.875rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:650;padding-bottom:.35rem}
th,td{padding:.28rem .9rem .28rem 0;text-align:left;vertical-align:baseline;
border-bottom:1px solid var(--grid)}
tr:last-child>td{border-bottom:0}
thead th{white-space:nowrap;color:var(--soft);font-weight:550;font-size:.8rem;
border-bottom:1px solid var(--line)}
th:last-child,td:last-child{padding-right:0}
th.number,td.number{text-align:right;white-space:nowrap}
td.name,td.keep{white-space:nowrap}
td.note{color:var(--soft)}
.metrics thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.metrics td.name{white-space:normal}
.metrics td.number{width:1%}
.metrics td.note{width:55%}
.scroll{overflow-x:auto;overscroll-behavior-x:contain}
.scroll td.note,.scroll td.text{min-width:14rem}
.scroll td.text{white-space:normal}
td .null{color:var(--bad);font-weight:600}
.chip{display:inline-block;border-radius:.3rem;padding:0 .45rem;font-size:.8rem;font-weight:600;
white-space:nowrap}
.finding{border-left:.3rem solid var(--line)}
.finding.error{border-left-color:var(--bad)}.finding.warning{border-left-color:var(--warn)}
.finding.notice{border-left-color:var(--info)}
.finding p:last-child{margin-bottom:0}
.finding .head{display:flex;flex-wrap:wrap;gap:.1rem .5rem;align-items:baseline;margin-top:0}
.finding .head code{margin-left:auto;color:var(--soft);font-size:.8rem}
dfn{cursor:help;text-decoration:underline dotted;text-decoration-color:var(--soft);text-underline-offset:.2em}
dfn:focus-visible,.scroll:focus-visible,a:focus-visible,summary:focus-visible{outline:2px solid var(--link);
outline-offset:2px;border-radius:.15rem}
.tip{display:none;position:absolute;z-index:1;max-width:min(24rem,calc(100vw - 3rem));margin-top:1.7em;
padding:.5rem .7rem;border-radius:.4rem;background:var(--text);color:var(--card);
font:.82rem/1.45 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;white-space:normal;
text-decoration:none;
box-shadow:0 2px 12px rgba(0,0,0,.25)}
.term{white-space:nowrap}
.term:hover .tip,.term:focus-within .tip{display:inline-block}
details{margin:.5rem 0 0}
summary{cursor:pointer;color:var(--link);font-size:.875rem;width:fit-content}
details[open]>summary{margin-bottom:.5rem}
ul.lines{margin:.5rem 0 0;padding:0;list-style:none;font-size:.875rem;color:var(--soft)}
ul.lines li{margin:.1rem 0}
footer{padding-top:1.5rem;padding-bottom:2.5rem;color:var(--soft);font-size:.85rem}
@media (max-width:34rem){
header,main,footer{padding-left:.8rem;padding-right:.8rem}
header{padding-top:1.1rem}
h1{font-size:1.3rem}
.card{padding:.8rem .8rem}
.figures{grid-template-columns:1fr 1fr;gap:.5rem}
.metrics,.metrics tbody,.stack,.stack tbody{display:block}
.stack thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.stack tr{display:flex;flex-wrap:wrap;gap:.1rem .6rem;align-items:baseline;padding:.45rem 0;
border-bottom:1px solid var(--grid)}
.stack tr:last-child{border-bottom:0}
.stack td{border:0;padding:0}.stack td:empty{display:none}
.stack td.text{flex-basis:100%;min-width:0}
.stack td[data-head]::before{content:attr(data-head) ": ";color:var(--soft);font-weight:400}
.metrics tr{display:grid;grid-template-columns:minmax(0,1fr) auto;padding:.3rem 0;
border-bottom:1px solid var(--grid)}
.metrics tr:last-child{border-bottom:0}
.metrics td{border:0;padding:0}
.metrics td.number,.metrics td.note{width:auto}
.metrics td.note{grid-column:1/-1;font-size:.8rem}
}
@media print{
body{font-size:10.5pt;background:none}
header,main,footer{max-width:none;padding-left:0;padding-right:0}
nav,summary{display:none}
.card,tr,figure{break-inside:avoid}
.card{border-color:#c9ced6}
.scroll{overflow:visible}
.tip,details:not([open]),figure>details{display:none!important}
.card:has(>details:only-child:not([open])),section:has(>.card:only-of-type>details:only-child:not([open])){
display:none}
h2{break-after:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""
)
