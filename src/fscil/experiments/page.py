"""What stands at the top of an experiment's page: its figures and its paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fscil.experiments import ranking
from fscil.experiments.differences import METRICS, Line, interval_text, spread_text
from fscil.experiments.ranking import Neighbours
from fscil.experiments.specs import Experiment
from fscil.report.html.blocks import card, folded

FEW_LINES = 20  # of a table that is shown at once
MEANING = (
    "Points are runs with the same seed (and draw or order) subtracted from each other; lines are Student's 95 % "
    "intervals (of several seeds and several draws the wider one: over seeds, or over draws). Filled points: the "
    "interval excludes 0. Many lines: some exclude it by chance."
)


def opening(experiment: Experiment, lines: Sequence[Line], order: Sequence[Neighbours], svg: Mapping[str, str]) -> str:
    """Cards with the figure in the form of the paper, the published numbers beside, the differences, and the order."""
    where = f" ({experiment.shows} of the paper)" if experiment.shows else ""
    note = f'<p class="note">{escape(experiment.note)}</p>' if experiment.note else ""
    cards = [card(f"{experiment.title or experiment.name}{where}", picture(svg.get("figure", "")), note, table(lines))]
    if "differences" in svg:
        explained = f'<p class="note">{MEANING}</p>'
        cards.append(card("Paired differences", picture(svg["differences"]), explained, gaps(lines)))
    if order:
        cards.append(card("Neighbours in the ranking", *told_order(order)))
    return "".join(cards)


def picture(svg: str) -> str:
    return f'<div class="figure">{svg}</div>'


def table(lines: Sequence[Line]) -> str:
    """Means and standard deviations, with the published Avg."""
    rows = [
        [line.name, str(line.n), *(spread_text(line.spreads[m]) for m in METRICS), line.published_text]
        for line in lines
    ]
    unfolded = len(lines) <= FEW_LINES
    return folded("The numbers", plain_table(["", "n", *METRICS, "published Avg"], rows), unfolded=unfolded)


def gaps(lines: Sequence[Line]) -> str:
    rows = [
        [line.name, line.reference, str(line.pairs), *(interval_text(line.gaps[m]) for m in METRICS)]
        for line in lines
        if line.gaps
    ]
    return folded("The numbers", plain_table(["", "minus", "pairs", *METRICS], rows))


def told_order(order: Sequence[Neighbours]) -> list[str]:
    """Which neighbours can be told apart, and by which numbers."""
    sentences = [f"<p>{escape(sentence)}</p>" for sentence in ranking.sentences(order)]
    numbers = plain_table(ranking.TITLES, [pair.cells for pair in order])
    explained = f'<p class="note">{escape(ranking.MEANING)}</p>'
    return [*sentences, folded("The numbers", numbers, unfolded=len(order) <= FEW_LINES), explained]


def plain_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = (
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(text)}</td>' for text in rest)}</tr>"
        for first, *rest in rows
    )
    body = "".join(lines)
    return f'<div class="scroll"><table class="rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
