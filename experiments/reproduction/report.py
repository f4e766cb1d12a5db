"""One self-contained page: verdicts first, then every figure with what it shows, then how it was
made.
"""

from __future__ import annotations

import base64
import html
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd

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

CAPTIONS = {
    "1a": "Cumulative regret: lower is better. Left, the calibration behind the paper's figure: "
    "LinUCB first, DGS close to it, Private LinUCB far off. Right, the same method with "
    "the constants the paper prints does no better than random play; the proven algorithms "
    "lie between.",
    "1b": "Cumulative reward as a multiple of what random play expects (one hit in 25): higher "
    "is better. One shared model, PCA features.",
    "1c": "Distance of the released parameter from the true one. Noise that is too small "
    "converges fast; noise that is large enough does not.",
    "2a": "Regret at the last round as ε grows: weaker privacy, less regret.",
    "2b": "How many later choices differ after one reward is changed, with the same privacy "
    "noise in both runs. LinUCB is deterministic and runs once.",
    "2c": "The same on LastFM. A flipped click is a larger change than the simulation's 0.5.",
    "noise": "Noise in one coordinate of θ, per tree node. Below the required curves there is no "
    "privacy; above 1 the noise is longer than θ* itself, and there is no utility. The "
    "figures' calibration lies far below, the printed constants far above.",
}
CSS = Path(__file__).with_name("report.css").read_text()

WHO = (
    "<p>Who is who: <em>linucb</em> learns without privacy. <em>dgs-figure</em> is the "
    "paper's method with the noise behind its figures, "
    "<em>dgs-published</em> the same with the constants the paper prints, <em>dgs</em> our "
    "form of it whose privacy is proven. "
    "<em>private-linucb-published</em> is the rival (Neel &amp; Roth 2018) as the paper "
    "ran it, <em>private-linucb</em> with the noise it needs.</p>"
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
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
        "content='width=device-width,initial-scale=1'>",
        "<title>Dynamic global sensitivity: the experiments, reproduced and judged</title>",
        f"<style>{CSS}</style><main>",
        "<h1>Dynamic global sensitivity: the experiments, reproduced and judged</h1>",
        _lead(verdicts, config),
        *(f"<p class=note><strong>Left out:</strong> {html.escape(text)}</p>" for text in left_out),
        "<h2 id=verdicts>Verdicts</h2>",
        WHO,
        _table(verdicts),
        "<p class=soft><strong>Reproduced</strong>: it holds with the constants the paper "
        "prints, or for our proven form of DGS. "
        "<strong>Only at the figure's calibration</strong>: it holds for Δ<sub>t</sub> = "
        "1/t, the scale behind the published "
        "curves, which is not private at the stated ε. <strong>Not reproduced</strong>: "
        "neither was shown; where an exponent is known no better than ± 0.15, "
        "the data do not decide. Tests are at level 0.01 each, with no correction for "
        "judging ten claims; the thresholds were set "
        "with earlier results in view.</p>",
    ]
    for name in ("noise", "1a", "1b", "1c", "2a", "2b", "2c"):
        if name in figures:
            parts.append(f"<h2 id=figure-{name}>{NAMES[name]}</h2>{_figure(name, figures[name])}")
    for title, frame in extra.items():
        shown = frame.to_html(index=False, border=0, float_format=lambda v: f"{v:,.4g}")
        parts.append(f"<h2>{html.escape(title)}</h2><div class=scroll>{shown}</div>")
    made = html.escape(json.dumps(config, indent=1, ensure_ascii=False))
    parts.append(
        "<h2>How it was made</h2><p>The same command with the same profile gives the same "
        "numbers. Tables lie beside this page as Parquet and CSV.</p>"
        "<details><summary>Configuration, versions and seeds</summary>"
        f"<pre>{made}</pre></details>"
    )
    parts.append("</main></html>")
    return "\n".join(parts)


def _lead(verdicts: list[Verdict], config: dict[str, Any]) -> str:
    counts = {kind: sum(v.verdict == kind for v in verdicts) for kind in MARK}
    return (
        "<p class=lead>A recommender learns from clicks and adds noise so that its "
        "recommendations do not tell what anyone clicked. The paper "
        "(Wang, Zhao &amp; Wang, RecSys 2022) adds noise that shrinks as the model "
        "converges. Of the claims in its experiments, "
        f"<strong>{counts[REPRODUCED]}</strong> are reproduced, "
        f"<strong>{counts[FIGURE_ONLY]}</strong> hold only at the calibration behind the "
        "figures, "
        f"and <strong>{counts[NOT]}</strong> are not reproduced"
        + (f"; {counts[LEFT_OUT]} could not be tested" if counts[LEFT_OUT] else "")
        + f".</p><p class=soft>Profile {html.escape(config['profile'])}: simulation "
        f"{config['sizes']['horizon']:,} rounds × {config['sizes']['seeds']} seeds; "
        f"LastFM {config['sizes']['lastfm_horizon']:,} rounds × "
        f"{config['sizes']['lastfm_seeds']} seeds. Setting ε = 2, δ = 0.1: what each "
        "algorithm truly claims is in its legend.</p>"
    )


def _table(verdicts: list[Verdict]) -> str:
    rows = []
    for v in verdicts:
        mark, style = MARK[v.verdict]
        rows.append(
            f"<tr><td>{html.escape(v.claim)}<br><small>{html.escape(v.where)}</small></td><td "
            f"class='verdict {style}'>{mark} {html.escape(v.verdict)}</td>"
            f"<td>{html.escape(v.measured)}<br><small>{html.escape(v.test)}</small></td></tr>"
        )
    return (
        "<div class=scroll><table id=verdict-table><thead><tr><th>The paper "
        "claims<th>Verdict<th>Measured</tr></thead><tbody>"
        + "".join(rows)
        + "</tbody></table></div>"
    )


def _figure(name: str, figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    data = base64.b64encode(buffer.getvalue()).decode()
    caption = html.escape(CAPTIONS[name])
    return (
        f"<figure><img alt='{NAMES[name]}: {caption}' "
        f"src='data:image/png;base64,{data}'><figcaption>{caption}</figcaption></figure>"
    )
