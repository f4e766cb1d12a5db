"""One self-contained page: verdicts first, then every figure with what it shows, then how it was made."""

from __future__ import annotations

import base64
import html
import io
import json
from typing import Any

import pandas as pd

from experiments.reproduction.drawings import CAPTIONS
from experiments.reproduction.verdicts import FIGURE_ONLY, LEFT_OUT, NOT, REPRODUCED, Verdict

MARK = {
    REPRODUCED: ("✓", "yes"),
    FIGURE_ONLY: ("◐", "half"),
    NOT: ("✗", "no"),
    LEFT_OUT: ("–", "out"),
}
NAMES = {"noise": "The explaining figure"} | {
    n: f"Figure {n[0]}({n[1]})" for n in ("1a", "1b", "1c", "2a", "2b", "2c")
}

CSS = """
:root{--ink:#1b1f24;--soft:#57606a;--paper:#fff;--card:#f6f8fa;--line:#d0d7de;--yes:#116329;--half:#7d4e00;--no:#a40e26}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b1;--paper:#0d1117;--card:#161b22;--line:#30363d;--yes:#56d364;--half:#e3b341;--no:#ff7b72}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:64rem;margin:0 auto;padding:1.5rem 1rem 4rem}h1{line-height:1.2;margin:.4em 0}h2{margin-top:2.2em;border-bottom:1px solid var(--line)}
p.lead{font-size:1.1rem}small,.soft{color:var(--soft)}table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{border-bottom:1px solid var(--line);padding:.5rem .6rem;text-align:left;vertical-align:top}.scroll{overflow-x:auto}
.verdict{white-space:nowrap;font-weight:600}.yes{color:var(--yes)}.half{color:var(--half)}.no{color:var(--no)}.out{color:var(--soft)}
figure{margin:1.4rem 0;break-inside:avoid}figure img{width:100%;height:auto;background:#fff;border:1px solid var(--line);border-radius:6px;padding:.4rem}
figcaption{color:var(--soft);margin-top:.4rem}.note{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.8rem 1rem}
details{margin:.8rem 0}pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.8rem;overflow-x:auto;font-size:.82rem}
@media(max-width:46rem){#verdict-table thead{display:none}#verdict-table td{display:block;border:0;padding:.2rem 0}#verdict-table tr{display:block;border-bottom:1px solid var(--line);padding:.6rem 0}.verdict{white-space:normal}}
@media print{body{font-size:11pt}h2{break-after:avoid}figure img{border:0}details[open] pre{white-space:pre-wrap}}
"""


WHO = (
    "<p>Who is who: <em>linucb</em> learns without privacy. <em>dgs-figure</em> is the paper's method with the noise behind its figures, "
    "<em>dgs-published</em> the same with the constants the paper prints, <em>dgs</em> our form of it whose privacy is proven. "
    "<em>private-linucb-published</em> is the rival (Neel &amp; Roth 2018) as the paper ran it, <em>private-linucb</em> with the noise it needs.</p>"
)


def page(
    verdicts: list[Verdict],
    figures: dict[str, Any],
    left_out: list[str],
    config: dict[str, Any],
    extra: dict[str, pd.DataFrame],
) -> str:
    """The report as HTML. `figures` are Matplotlib figures by name."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>",
        "<title>Dynamic global sensitivity: the experiments, reproduced and judged</title>",
        f"<style>{CSS}</style><main>",
        "<h1>Dynamic global sensitivity: the experiments, reproduced and judged</h1>",
        _lead(verdicts, config),
        *(f"<p class=note><strong>Left out:</strong> {html.escape(text)}</p>" for text in left_out),
        "<h2 id=verdicts>Verdicts</h2>",
        WHO,
        _table(verdicts),
        "<p class=soft><strong>Reproduced</strong>: it holds with the constants the paper prints, or for our proven form of DGS. "
        "<strong>Only at the figure's calibration</strong>: it holds for Δ<sub>t</sub> = 1/t, the scale behind the published "
        "curves, which is not private at the stated ε. <strong>Not reproduced</strong>: neither was shown; where an exponent is known no better than ± 0.15, "
        "the data do not decide. Tests are at level 0.01 each, with no correction for judging ten claims; the thresholds were set "
        "with earlier results in view.</p>",
    ]
    for name in ("noise", "1a", "1b", "1c", "2a", "2b", "2c"):
        if name in figures:
            parts.append(f"<h2 id=figure-{name}>{NAMES[name]}</h2>{_figure(name, figures[name])}")
    for title, frame in extra.items():
        parts.append(
            f"<h2>{html.escape(title)}</h2><div class=scroll>{frame.to_html(index=False, border=0, float_format=lambda v: f'{v:,.4g}')}</div>"
        )
    parts.append(
        "<h2>How it was made</h2><p>The same command with the same profile gives the same numbers. Tables lie beside this page as Parquet and CSV.</p>"
    )
    parts.append(
        f"<details><summary>Configuration, versions and seeds</summary><pre>{html.escape(json.dumps(config, indent=1, ensure_ascii=False))}</pre></details>"
    )
    parts.append("</main></html>")
    return "\n".join(parts)


def _lead(verdicts: list[Verdict], config: dict[str, Any]) -> str:
    counts = {kind: sum(v.verdict == kind for v in verdicts) for kind in MARK}
    return (
        "<p class=lead>A recommender learns from clicks and adds noise so that its recommendations do not tell what anyone clicked. The paper "
        "(Wang, Zhao &amp; Wang, RecSys 2022) adds noise that shrinks as the model converges. Of the claims in its experiments, "
        f"<strong>{counts[REPRODUCED]}</strong> are reproduced, <strong>{counts[FIGURE_ONLY]}</strong> hold only at the calibration behind the figures, "
        f"and <strong>{counts[NOT]}</strong> are not reproduced"
        + (f"; {counts[LEFT_OUT]} could not be tested" if counts[LEFT_OUT] else "")
        + f".</p><p class=soft>Profile {html.escape(config['profile'])}: simulation {config['sizes']['horizon']:,} rounds × {config['sizes']['seeds']} seeds; "
        f"LastFM {config['sizes']['lastfm_horizon']:,} rounds × {config['sizes']['lastfm_seeds']} seeds. Setting ε = 2, δ = 0.1: what each algorithm truly claims is in its legend.</p>"
    )


def _table(verdicts: list[Verdict]) -> str:
    rows = []
    for v in verdicts:
        mark, style = MARK[v.verdict]
        rows.append(
            f"<tr><td>{html.escape(v.claim)}<br><small>{html.escape(v.where)}</small></td><td class='verdict {style}'>{mark} {html.escape(v.verdict)}</td>"
            f"<td>{html.escape(v.measured)}<br><small>{html.escape(v.test)}</small></td></tr>"
        )
    return (
        "<div class=scroll><table id=verdict-table><thead><tr><th>The paper claims<th>Verdict<th>Measured</tr></thead><tbody>"
        + "".join(rows)
        + "</tbody></table></div>"
    )


def _figure(name: str, figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    data = base64.b64encode(buffer.getvalue()).decode()
    caption = html.escape(CAPTIONS[name])
    return f"<figure><img alt='{NAMES[name]}: {caption}' src='data:image/png;base64,{data}'><figcaption>{caption}</figcaption></figure>"
