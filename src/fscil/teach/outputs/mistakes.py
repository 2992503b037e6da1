"""The mistakes of a test as one HTML page with thumbnails, which needs nothing but itself."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from fscil.errors import FscilError
from fscil.teach.outputs.evaluation import Evaluation, Tested
from fscil.teach.seeing.photos import read
from fscil.text import count, printable

SIDE = 160  # pixels of a thumbnail
MOST = 500  # thumbnails of a section; more make a page that is slow to open


def page(result: Evaluation, model: Path, root: Path) -> str:
    """The whole HTML file; names of photos are told as they are below the folder `root`."""
    title = f"{model.name} tested on {root.resolve().name}"
    strangers = [one for one in result.wrong if one.stranger]
    taken = [one for one in result.wrong if not one.stranger]
    unsure = [one for one in result.tested if one.right and not one.stranger and not one.answer.known]
    facts = "".join(f"<p>{_text(line)}</p>\n" for line in result.summary_lines())
    style = files("fscil.teach").joinpath("mistakes.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_text(title)}</title>\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{style}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{_text(title)}</h1>\n{facts}"
        f"{_pairs(result)}"
        f"{_section('Taken for another class', taken, root) or '<p>No photo was taken for another class.</p>'}"
        f"{_section('Unknown photos that were taken for known', strangers, root)}"
        f"{_folded('Right, but not sure', unsure, root)}"
        "</main>\n</body>\n</html>\n"
    )


def _pairs(result: Evaluation) -> str:
    if not result.confused:
        return ""
    head = "<tr><th>photos of</th><th>taken for</th><th>photos</th></tr>"
    rows = "".join(f"<tr><td>{_text(t)}</td><td>{_text(s)}</td><td>{n}</td></tr>" for t, s, n in result.confused)
    return f"<h2>Confused classes</h2>\n<table>{head}{rows}</table>\n"


def _section(title: str, photos: Sequence[Tested], root: Path) -> str:
    return f"<h2>{_counted(title, photos)}</h2>\n{_figures(photos, root)}" if photos else ""


def _folded(title: str, photos: Sequence[Tested], root: Path) -> str:
    inside = f"<summary>{_counted(title, photos)}</summary>\n{_figures(photos, root)}"
    return f"<details>{inside}</details>\n" if photos else ""


def _counted(title: str, photos: Sequence[Tested]) -> str:
    return f"{title} ({count(len(photos), 'photo')})"


def _figures(photos: Sequence[Tested], root: Path) -> str:
    """By class and by answer, the most confident first."""
    ordered = sorted(photos, key=lambda one: (one.truth, one.said, -one.answer.best[0][1]))
    more = f'<p class="soft">and {len(ordered) - MOST} more</p>\n' if len(ordered) > MOST else ""
    return f'<div class="photos">\n{"".join(_figure(one, root) for one in ordered[:MOST])}</div>\n{more}'


def _figure(one: Tested, root: Path) -> str:
    name = one.photo.relative_to(root) if one.photo.is_relative_to(root) else one.photo
    said = f"{_text(one.said)} {one.answer.best[0][1]:.2f}"
    unsure = "" if one.answer.known else ", not sure"
    what = f"is {_text(one.truth)}, taken for <b>{said}</b>{unsure}" if not one.right else f"{said}{unsure}"
    caption = f'<figcaption>{what}<br><span class="soft">{_text(name)}</span></figcaption>'
    return f"<figure>{_thumbnail(one)}{caption}</figure>\n"


def _thumbnail(one: Tested) -> str:
    """The photo, small, as part of the page."""
    try:
        picture = read(one.photo, SIDE)
    except FscilError:  # it was there when it was tested
        return '<div class="gone soft">cannot be read any longer</div>'
    picture.thumbnail((2 * SIDE, SIDE))
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=80)
    data = base64.b64encode(content.getvalue()).decode()
    return f'<img src="data:image/jpeg;base64,{data}" alt="{_text(one.truth)}">'


def _text(words: object) -> str:
    return escape(printable(str(words)))
