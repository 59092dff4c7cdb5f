"""How the page of a run looks: one template, one style sheet, nothing from elsewhere and no script.

Knows only the names that `page` hands it; every value is escaped by the engine.
"""

from __future__ import annotations

from collections.abc import Mapping

STYLE = """
:root { color-scheme: light dark;
  --paper: #f7f5f0; --card: #fffefb; --ink: #23262b; --soft: #5f646c; --faint: #686c73; --line: #e3ded2;
  --accent: #1f6f6b; --tint: #e5f0ee; --good: #24734a; --good-tint: #e4f1e8; --wait: #8a5a00; --wait-tint: #f8edd6;
  --bad: #a63a32; --bad-tint: #f8e6e3; --person: #5b4a8a; --person-tint: #edeaf6; --pale: #b3afa4; --edge: #b4cabc; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #141619; --card: #1c1f23; --ink: #e7e4dd; --soft: #a8adb5; --faint: #91969e; --line: #30343a;
  --accent: #7fc8c0; --tint: #1d302f; --good: #83cfa2; --good-tint: #1b3125; --wait: #e3b75f; --wait-tint: #362b15;
  --bad: #f0958c; --bad-tint: #3b2220; --person: #b9a9ea; --person-tint: #29243a;
  --pale: #555a61; --edge: #3d5748; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.6 system-ui, -apple-system, "Segoe UI",
  Roboto, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif; overflow-wrap: anywhere; }
main { max-width: 66rem; margin: 0 auto; padding: 3rem 1.5rem 4rem; }
h1 { font: 400 clamp(1.5rem, 1.1rem + 1.9vw, 2.3rem)/1.35 ui-serif, Georgia, "Songti SC", "Noto Serif CJK SC", serif;
  margin: .5rem 0 1.25rem; max-width: 34em; text-wrap: pretty; }
h2 { font-size: .82rem; font-weight: 650; letter-spacing: .09em; text-transform: uppercase; color: var(--soft);
  margin: 0 0 1rem; }
section { margin-top: 3rem; }
code, .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Noto Sans Mono CJK SC", monospace;
  font-size: .875em; }
.eyebrow { color: var(--soft); font-size: .875rem; margin: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
.pill { display: inline-block; border-radius: 99px; padding: .05rem .7rem; font-size: .8125rem; font-weight: 600;
  background: var(--tint); color: var(--accent); white-space: nowrap; }
.pill.big { font-size: 1rem; padding: .25rem 1.1rem; }
.booked, .answered, .done, .recorded { --hue: var(--good); --hue-tint: var(--good-tint); }
.needs_user, .declined, .refused, .dropped, .open { --hue: var(--wait); --hue-tint: var(--wait-tint); }
.stopped, .failed { --hue: var(--bad); --hue-tint: var(--bad-tint); }
.pill.booked, .pill.answered, .pill.done, .pill.recorded, .pill.needs_user, .pill.declined, .pill.refused, .pill.open,
.pill.stopped, .pill.failed { background: var(--hue-tint); color: var(--hue); }
.verdict { display: flex; flex-wrap: wrap; align-items: center; gap: .75rem; margin-bottom: 1.75rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 1.25rem 1.5rem; }
.ticket { display: grid; grid-template-columns: 1fr auto; padding: 0; margin-bottom: 1.5rem; max-width: 46rem;
  border-color: var(--edge); }
.ticket dl { margin: 0; padding: 1.4rem 1.75rem; display: grid; gap: .7rem; align-content: center; }
.ticket dl + dl { border-left: 2px dashed var(--line); min-width: 13rem; }
.ticket dt, .figures dt { font-size: .78rem; color: var(--soft); line-height: 1.3; }
.ticket dd { margin: 0; line-height: 1.4; }
.ticket .hotel, .ticket .total { font-size: 1.3rem; font-weight: 600; }
.ticket .reference { font-family: ui-monospace, Menlo, Consolas, monospace; letter-spacing: .04em; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2.25rem; margin: 1.5rem 0 0; }
.figures div { display: flex; flex-direction: column-reverse; }
.figures dd { margin: 0; font-size: 1.35rem; font-weight: 500; font-variant-numeric: tabular-nums; line-height: 1.3; }
.reply { white-space: pre-wrap; margin: 0; font: inherit; max-width: 46rem; }
.reply-box { max-width: 46rem; } .reply-box > summary { font-weight: 600; } .reply-box[open] > summary {
  margin-bottom: .5rem; }
.reply-box.card { border-left: 4px solid var(--hue, var(--line)); }
.split { display: grid; grid-template-columns: minmax(0, 25rem) minmax(0, 1fr); gap: 2rem; align-items: center; }
.sheet { display: block; width: 100%; height: auto; }
.sheet text { font: 500 11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: var(--faint);
  text-anchor: middle; }
.sheet rect { fill: var(--card); stroke: var(--line); stroke-width: 1.2; }
.sheet .been rect { stroke: var(--accent); stroke-width: 1.6; } .sheet .been text { fill: var(--ink); }
.sheet .now rect { fill: var(--accent); stroke: var(--accent); } .sheet .now text { fill: var(--card); }
.sheet path.move { fill: none; stroke: var(--pale); stroke-width: 1.2; stroke-dasharray: 3 3; }
.sheet path.taken { stroke: var(--accent); stroke-width: 2; stroke-dasharray: none; }
.sheet .head { fill: var(--pale); } .sheet .head.hot { fill: var(--accent); }
.sheet .count { fill: var(--paper); stroke: var(--accent); stroke-width: 1; }
.sheet .number { font: 600 9.5px system-ui, sans-serif; fill: var(--accent); }
.way { list-style: none; margin: 0 0 1rem; padding: 0; counter-reset: way -1; }
.way li { counter-increment: way; display: flex; align-items: baseline; gap: .75rem; padding: .25rem 0; }
.way li::before { content: counter(way); min-width: 1.6rem; text-align: right; color: var(--faint);
  font-size: .8125rem; font-variant-numeric: tabular-nums; }
.way small { color: var(--soft); }
.way li:first-child::before { content: "·"; }
.hint { color: var(--soft); font-size: .875rem; margin: 0; }
.plans { display: grid; align-items: start; gap: 1.25rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); }
.plan { scroll-margin-top: 1rem; }
.plan header { display: flex; justify-content: space-between; align-items: baseline; gap: 1rem; }
.plan h3 { margin: 0; font-size: 1.1rem; }
.plan p { margin: .35rem 0 0; color: var(--soft); font-size: .9375rem; }
.plan .reason { color: var(--ink); border-left: 3px solid var(--wait); padding-left: .75rem; margin-top: .8rem; }
.plan.past { background: none; }
.steps { list-style: none; margin: 1rem 0 0; padding: 0; }
.steps li { display: flex; flex-wrap: wrap; align-items: baseline; padding: .5rem 0;
  border-top: 1px solid var(--line); }
.steps .mark { flex: 0 0 1.6rem; } .steps .step { flex: 1 1 8rem; }
.steps .mark { color: var(--hue, var(--faint)); font-weight: 700; }
.steps small { display: block; color: var(--soft); }
.steps .told { font-size: .8125rem; color: var(--soft); margin-left: auto; padding-left: .75rem; }
.story { list-style: none; margin: 0; padding: 0; position: relative; }
.story::before { content: ""; position: absolute; left: 6.1rem; top: .6rem; bottom: .6rem; width: 1px;
  background: var(--line); }
.story > li { display: grid; grid-template-columns: 5rem minmax(0, 1fr); gap: 2.25rem; margin-bottom: 1.25rem;
  position: relative; }
.story > li::before { content: ""; position: absolute; left: calc(6.1rem - 4px); top: .55rem; width: 9px; height: 9px;
  border-radius: 50%; background: var(--dot, var(--line)); outline: 4px solid var(--paper); }
.story .clock { color: var(--faint); font-size: .8125rem; text-align: right; font-variant-numeric: tabular-nums;
  padding-top: .15rem; }
.story .turn { --dot: var(--accent); } .story .person { --dot: var(--person); } .story .last { --dot: var(--ink); }
.who { display: flex; flex-wrap: wrap; align-items: baseline; gap: .1rem .9rem; margin: 0 0 .6rem; font-weight: 600; }
.who small { color: var(--soft); font-weight: 400; font-variant-numeric: tabular-nums; }
.speech { margin: 0; padding: .7rem 1rem; border-radius: 4px 14px 14px 14px; background: var(--person-tint);
  max-width: 46rem; width: fit-content; white-space: pre-wrap; }
.turn .speech { background: var(--tint); margin-bottom: .75rem; }
.speech.quiet { background: none; border: 1px dashed var(--line); color: var(--soft); }
.speech .label { display: block; font-size: .78rem; color: var(--soft); }
.call { padding: 1rem 1.25rem; margin-bottom: .75rem; border-left: 4px solid var(--hue, var(--line)); }
.call > header { display: flex; flex-wrap: wrap; align-items: center; gap: .35rem .75rem; }
.call h3 { margin: 0; font-size: 1rem; font-weight: 600; }
.call h4 { margin: .9rem 0 .25rem; font-size: .78rem; font-weight: 500; color: var(--soft); }
.call .why { margin: .6rem 0 0; }
.parts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); column-gap: 2rem; }
.rows { margin: 0; display: grid; grid-template-columns: fit-content(11rem) minmax(0, 1fr); gap: .15rem 1rem; }
.rows dt { color: var(--soft); } .rows dd { margin: 0; }
.rows dt, .rows dd { font-size: .9rem; }
.cut { margin: 0; display: flex; flex-wrap: wrap; gap: .3rem .5rem; }
.cut s { font-size: .8125rem; color: var(--faint); text-decoration-color: var(--bad); border: 1px solid var(--line);
  border-radius: 6px; padding: 0 .45rem; }
.notes { margin: .6rem 0 0; padding: 0; list-style: none; font-size: .9rem; color: var(--wait); }
details > summary { cursor: pointer; color: var(--soft); font-size: .875rem; }
details > summary:hover, details[open] > summary { color: var(--accent); }
a { color: var(--accent); } :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.request { margin-top: .25rem; } .tools { margin-bottom: 1.5rem; }
.request dl { margin: .75rem 0 0; border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
.request dt { padding: .6rem .9rem 0; font-size: .75rem; color: var(--accent); background: var(--card); }
.request dd { margin: 0; padding: .15rem .9rem .7rem; white-space: pre-wrap; background: var(--card);
  max-height: 22rem; overflow: auto; font-size: .8125rem; line-height: 1.5; border-bottom: 1px solid var(--line); }
.request dd:last-child { border-bottom: 0; }
footer { margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--faint);
  font-size: .8125rem; }
@media (max-width: 46rem) {
  main { padding: 1.5rem 1rem 3rem; } section { margin-top: 2.25rem; }
  .split { grid-template-columns: minmax(0, 1fr); gap: 1.25rem; } .card { padding: 1rem; }
  .ticket { grid-template-columns: 1fr; padding: 0; } .ticket dl { padding: 1.1rem 1.25rem; }
  .ticket dl + dl { border-left: 0; border-top: 2px dashed var(--line); }
  .figures { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1rem; }
  .story::before { left: 4px; } .story > li { grid-template-columns: minmax(0, 1fr); gap: 0; padding-left: 1.4rem; }
  .story > li::before { left: 0; } .story .clock { text-align: left; padding: 0; }
  .rows { grid-template-columns: fit-content(7.5rem) minmax(0, 1fr); } }
@media print { body { background: none; } .call, .plan, .ticket { break-inside: avoid; } }
"""

PAGE = """
{% import "parts" as parts with context %}
<!DOCTYPE html>
<html lang="{{ language }}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'">
<meta name="referrer" content="no-referrer">
<title>{{ word(outcome) }} · {{ run.goal | truncate(60) }}</title>
<style>{% include "style" %}</style>
</head>
<body>
<main>
<header>
<p class="eyebrow"><span>{{ word("run") }} <code>{{ run.run_id }}</code></span><time>{{ date }}</time>
<span>{{ word("model") }} <code>{{ provider }}</code></span></p>
<h1>{{ run.goal }}</h1>
<div class="verdict"><span class="pill big {{ outcome }}">{{ word(outcome) }}</span>
{% if run.outcome_reason %}<code>{{ run.outcome_reason }}</code>{% endif %}</div>
{% if ticket %}{{ parts.draw_ticket() }}{% endif %}
{% if run.reply %}
<details class="reply-box {{ '' if ticket else 'card ' ~ outcome }}" {{ "" if ticket else "open" }}>
<summary>{{ word("reply") }}</summary>
<p class="reply">{{ run.reply }}</p></details>
{% endif %}
<dl class="figures">
{% for name, value in figures %}<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>{% endfor %}
</dl>
</header>

<section aria-labelledby="way"><h2 id="way">{{ word("way") }}</h2>
<div class="split">{{ parts.draw_sheet() }}
<div><ol class="way">{% for phase, events in way %}
<li><code>{{ phase }}</code><small>{{ events }}</small></li>{% endfor %}</ol>
<p class="hint">{{ word("way_hint") }}</p></div></div></section>

<section aria-labelledby="plans"><h2 id="plans">{{ word("plans") }}</h2>
{% if plans %}<div class="plans">{% for plan in plans %}{{ parts.draw_plan(plan) }}{% endfor %}</div>
{% else %}<p class="hint">{{ word("no_plan") }}</p>{% endif %}</section>

<section aria-labelledby="story"><h2 id="story">{{ word("story") }}</h2>
{% if tools %}<details class="request tools"><summary>{{ word("tools") }}</summary>
<dl>{% for tool in tools %}<dt class="mono">{{ tool.role }}</dt><dd class="mono">{{ tool.text }}</dd>
{% endfor %}</dl></details>{% endif %}
<ol class="story">{% for item in items %}{{ parts.draw_item(item) }}{% endfor %}</ol></section>
<footer>{{ word("credit") }}</footer>
</main>
</body>
</html>
"""

PARTS = """
{% macro draw_ticket() %}
<div class="card ticket">
<dl>{% for name, value in ticket if name in ("hotel", "room", "stay") %}
<div><dt>{{ word(name) }}</dt><dd class="{{ name }}">{{ value }}</dd></div>{% endfor %}</dl>
<dl>{% for name, value in ticket if name in ("total", "reference") %}
<div><dt>{{ word(name) }}</dt><dd class="{{ name }}">{{ value }}</dd></div>{% endfor %}</dl>
</div>
{% endmacro %}

{% macro draw_sheet() %}
<svg class="sheet" viewBox="0 0 {{ size[0] }} {{ size[1] }}" role="img"
 aria-label="{{ way | map('first') | join(' → ') }}">
<defs>{% for heat in ("", "hot") %}
<marker id="head{{ heat }}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"
 markerUnits="userSpaceOnUse"><path class="head {{ heat }}" d="M0 0L8 4L0 8z"/></marker>{% endfor %}</defs>
{% for arrow in sheet.arrows %}
<path class="move {{ 'taken' if arrow.taken }}" d="{{ arrow.path }}"
 marker-end="url(#head{{ 'hot' if arrow.taken }})"><title>{{ arrow.events }}</title></path>
{% endfor %}
{% for box in sheet.boxes %}
<g class="{{ 'been' if box.been }} {{ 'now' if box.now }}">
<rect x="{{ box.x - half[0] }}" y="{{ box.y - half[1] }}" rx="7"
 width="{{ 2 * half[0] }}" height="{{ 2 * half[1] }}"/>
<text x="{{ box.x }}" y="{{ box.y + 4 }}">{{ box.name }}</text></g>
{% endfor %}
{% for arrow in sheet.arrows if arrow.numbers %}
<rect class="count" x="{{ arrow.x - arrow.half_width }}" y="{{ arrow.y - 7 }}" rx="7" height="14"
 width="{{ 2 * arrow.half_width }}"/>
<text class="number" x="{{ arrow.x }}" y="{{ arrow.y + 3.4 }}">{{ arrow.label }}</text>
{% endfor %}
<text x="{{ turning_point[0] }}" y="{{ turning_point[1] + 14 }}">{{ word("back") }}</text>
</svg>
{% endmacro %}

{% macro draw_plan(plan) %}
<article class="card plan {{ '' if plan.current else 'past' }}" id="plan-{{ plan.version }}">
<header><h3>{{ word("plan", version=plan.version) }} · {{ plan.city }}</h3>
<span class="hint">{{ word("in_force" if plan.current else "replaced") }}</span></header>
<p>{{ plan.stay }}</p><p>{{ plan.rule }}</p>
{% if plan.reason %}<p class="reason">{{ plan.reason }}</p>{% endif %}
<ol class="steps">{% for step in plan.steps %}
<li class="{{ step.status }}"><span class="mark" aria-hidden="true">{{ step.mark }}</span>
<span class="step"><code>{{ step.tool }}</code><small>{{ step.purpose }}</small></span>
<span class="told">{{ step.told }}</span></li>{% endfor %}</ol>
</article>
{% endmacro %}

{% macro draw_item(item) %}
{% set side = {"turn": "turn", "run_started": "person", "person_spoke": "person", "approval_given": "person",
 "run_ended": "last"}.get(item.kind, "code") %}
<li class="{{ side }}"><time class="clock">{{ item.clock }}</time><div>
{% if item.kind == "turn" %}
<p class="who">{{ word("turn", number=item.number) }}<small>{{ word("spent", tokens=item.tokens) }}</small>
{% if item.seconds is not none %}<small>{{ word("waited", seconds=item.seconds) }}</small>{% endif %}</p>
{% if item.text %}<p class="speech {{ 'quiet' if item.left_out }}"><span class="label">
{{- word("left_out" if item.left_out else "says") }}</span>{{ item.text }}</p>{% endif %}
{% for call in item.calls %}{{ draw_card(call) }}{% endfor %}
{% else %}
<p class="who">{{ word({"person": "you", "last": "end"}.get(side, "harness")) }}</p>
<p class="speech {{ 'quiet' if side != 'person' }}">{{ item.text }}</p>
{% endif %}
{% if item.request %}{{ draw_request(item.request) }}{% endif %}
</div></li>
{% endmacro %}

{% macro draw_card(call) %}
<article class="card call {{ call.status }}">
<header><h3><code>{{ call.tool }}</code></h3><span class="pill {{ call.status }}">{{ word(call.status) }}</span>
{% if call.code %}<code>{{ call.code }} → {{ call.branch }}</code>{% endif %}
{% if call.plan_version %}<a href="#plan-{{ call.plan_version }}">
{{- word("to_plan", version=call.plan_version) }}</a>{% endif %}</header>
{% if call.message %}<p class="why">{{ call.message }}</p>{% endif %}
<div class="parts">{% if call.arguments %}{{ draw_rows(word("arguments"), call.arguments) }}{% endif %}
{% if call.rows %}{{ draw_rows(word("details" if call.code else "came_back"), call.rows) }}{% endif %}</div>
{% if call.notes %}<ul class="notes">{% for note in call.notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
{% if call.dropped %}<h4>{{ word("cut") }}</h4>
<p class="cut">{% for name in call.dropped %}<s class="mono">{{ name }}</s>{% endfor %}</p>{% endif %}
</article>
{% endmacro %}

{% macro draw_rows(title, rows) %}
<div><h4>{{ title }}</h4>
<dl class="rows">{% for name, value in rows %}<dt class="mono">{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}</dl></div>
{% endmacro %}

{% macro draw_request(request) %}
<details class="request"><summary>{{ word("request", count=request.count, characters=request.characters) }}</summary>
<dl>{% if request.known %}<dt class="mono">…</dt><dd>{{ word("known", known=request.known) }}</dd>{% endif %}
{% for message in request.new %}<dt class="mono">{{ message.role }}</dt><dd class="mono">{{ message.text }}</dd>
{% endfor %}</dl></details>
{% endmacro %}
"""

TEMPLATES: Mapping[str, str] = {"page": PAGE.strip(), "parts": PARTS.strip(), "style": STYLE.strip()}
