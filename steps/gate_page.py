"""The gate's report as one self-contained HTML page, small enough for the run's artifact tab."""

from __future__ import annotations

from html import escape

from steps.gate import Check, GateReport

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em; color: #1b1b1b; background: #fff }
h1 { font-size: 1.3em } .passed { color: #146c2e } .failed { color: #b3261e }
table { border-collapse: collapse } th, td { padding: .35em .9em; text-align: left }
th { border-bottom: 2px solid #999 } td { border-bottom: 1px solid #ddd }
td.number { text-align: right; font-variant-numeric: tabular-nums }
"""


def gate_page(report: GateReport, *, title: str, facts: dict[str, str]) -> str:
    """Return the page: verdict first, then the checks, then what was compared.

    Args:
        report: the checks.
        title: the registered model's name.
        facts: name -> value, e.g. run, model and data.
    """
    state = "passed" if report.passed else "failed"
    rows = "\n".join(_row(check) for check in report.checks)
    listed = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Gate {state}: {escape(title)}</title>
<style>{_STYLE}</style></head><body>
<h1 class="{state}">{escape(title)}: {escape(report.verdict)}</h1>
<table><tr><th>check</th><th>value</th><th>least</th><th>verdict</th><th>reason</th></tr>
{rows}
</table>
<p></p>
<table>
{listed}
</table>
</body></html>
"""


def _row(check: Check) -> str:
    state = "passed" if check.passed else "failed"
    return (
        f"<tr><td>{escape(check.name)}</td>"
        f'<td class="number">{_number(check.value)}</td>'
        f'<td class="number">{_number(check.limit)}</td>'
        f'<td class="{state}">{state}</td><td>{escape(check.reason)}</td></tr>'
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
