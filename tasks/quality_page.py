"""The quality report as one HTML page, made for MLflow's artifact viewer: a frame 1020 px wide.

No script, no outside file, light and dark; a text that comes from labels is always escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from readers.records import Finding

EXAMPLES_SHOWN = 10
ROWS_SHOWN = 100
HEADLINES = {
    "error": "Errors: nothing can be trained on this until they are mended",
    "warning": "Usable, with warnings",
    "clean": "Nothing wrong was found",
}
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d9dee5;
  --page: #ffffff; --card: #f5f7f9; --error: #b3261e; --warning: #8a5a00; --clean: #1b6b3a;
  --bar: #7aa7d9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa5b4; --line: #38414d;
  --page: #14181d; --card: #1d232a; --error: #ff8a80; --warning: #ffc266; --clean: #7fd6a0;
  --bar: #3f6ea3; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px 20px 40px; max-width: 1020px; background: var(--page);
  color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 8px; }
p { margin: 4px 0 12px; color: var(--soft); }
.error { color: var(--error); } .warning { color: var(--warning); } .clean { color: var(--clean); }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th, td { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; }
.bar { display: block; height: 4px; border-radius: 2px; background: var(--bar); }
details { border: 1px solid var(--line); border-radius: 6px; padding: 6px 12px; margin: 6px 0; }
summary { cursor: pointer; } summary b { font-weight: 600; }
code { font: 12.5px ui-monospace, monospace; }
.cases { display: grid; grid-template-columns: repeat(4, 1fr); gap: 12px; }
figure { margin: 0; padding: 8px; background: var(--card); border-radius: 6px; }
figure img { display: block; max-width: 100%; margin: 0 auto 6px; border-radius: 3px; }
figcaption { font-size: 12px; overflow-wrap: anywhere; } figcaption span { color: var(--soft); }
"""


@dataclass(frozen=True)
class Thumbnail:
    """A finding drawn.

    Args:
        split: where it was found.
        finding: what was found.
        data_uri: the picture.
    """

    split: str
    finding: Finding
    data_uri: str


def render_page(content: Mapping[str, Any], thumbnails: Sequence[Thumbnail], *, legend: str) -> str:
    """Return the page.

    Args:
        content: what `tasks.quality.quality_report` returns as data.
        thumbnails: the worst cases, in the order in which they are shown.
        legend: what their colours mean.
    """
    splits, status = content["splits"], content["status"]
    parts = [
        f"<h1>Data quality: <span class={status}>{HEADLINES[status]}</span></h1>",
        "<p>An error stops the preparation; a warning is handled as its line says.</p>",
        *_overview(splits),
        *_findings(splits),
        *_cases(thumbnails, legend),
        *_tables(splits),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Data quality</title><style>{STYLE}</style></head><body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )


def _overview(splits: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    names = _unique(
        name
        for split in splits.values()
        for name, value in split["counts"].items()
        if not isinstance(value, Mapping)
    )
    rows = [
        [escape(_words(name)), *(_text(split["counts"].get(name)) for split in splits.values())]
        for name in names
    ]
    for severity in ("error", "warning"):
        counted = [_count(split["findings"], severity) for split in splits.values()]
        rows.append([f"{severity}s", *(_coloured(count, severity) for count in counted)])
    yield "<h2>Splits</h2>"
    yield _table(["", *map(escape, splits)], rows)


def _findings(splits: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    if not any(split["findings"] for split in splits.values()):
        return
    yield "<h2>Findings</h2>"
    for name, split in splits.items():
        for entry in split["findings"]:
            severity = entry["severity"]
            shown = entry["examples"][:EXAMPLES_SHOWN]
            rows = [
                [f"<code>{_text(one['where'])}</code>", _text(one["message"]), _text(one["action"])]
                for one in shown
            ]
            more = entry["count"] - len(shown)
            note = f"<p>and {more} more; quality.json holds the first hundred</p>" if more else ""
            opened = " open" if severity == "error" else ""
            yield (
                f"<details{opened}><summary><span class={severity}>{severity}</span> "
                f"<b>{escape(entry['code'])}</b> in {escape(name)}: {entry['count']}</summary>"
                f"{_table(['where', 'what', 'what is done'], rows)}{note}</details>"
            )


def _cases(thumbnails: Sequence[Thumbnail], legend: str) -> Iterable[str]:
    if not thumbnails:
        return
    yield f"<h2>Worst cases</h2><p>{escape(legend)}</p>"
    yield '<div class="cases">'
    for case in thumbnails:
        finding = case.finding
        yield (
            f'<figure><img src="{case.data_uri}" alt="{escape(finding.code)}"><figcaption>'
            f"<b class={finding.severity}>{escape(finding.code)}</b> ({escape(case.split)})<br>"
            f"{escape(finding.message)}<br><span>{escape(finding.where)}</span>"
            "</figcaption></figure>"
        )
    yield "</div>"


def _tables(splits: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yield one table for each nested count, with a bar per number."""
    names = _unique(
        name
        for split in splits.values()
        for name, value in split["counts"].items()
        if isinstance(value, Mapping)
    )
    for name in names:
        columns = [split["counts"].get(name) or {} for split in splits.values()]
        keys = _unique(key for column in columns for key in column)
        tops = [max([1, *column.values()]) for column in columns]
        rows = [
            [
                escape(str(key)),
                *(_bar(column.get(key), top) for column, top in zip(columns, tops, strict=True)),
            ]
            for key in keys[:ROWS_SHOWN]
        ]
        yield f"<h2>{escape(_words(name).capitalize())}</h2>"
        yield _table(["", *map(escape, splits)], rows)
        if len(keys) > ROWS_SHOWN:
            yield f"<p>and {len(keys) - ROWS_SHOWN} more; quality.json holds all</p>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
    for first, *others in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in others)
        lines.append(f"<tr><td>{first}</td>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _bar(value: Any, top: float) -> str:
    if value is None:
        return ""
    share = round(100 * value / top)
    return f"{_text(value)}<span class=bar style='width:{share}%'></span>"


def _count(findings: Iterable[Mapping[str, Any]], severity: str) -> int:
    return sum(entry["count"] for entry in findings if entry["severity"] == severity)


def _coloured(count: int, severity: str) -> str:
    return f"<span class={severity}>{count:,}</span>" if count else "0"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _unique(names: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(names))
