"""Rows that differ in two numeric settings are a sweep, and the page shows it as heat maps."""

import re
from html import escape
from itertools import product
from pathlib import Path

import pytest

from fscil import report
from fscil.report.rows import sections
from fscil.report.sweeps import Sweep, sweeps
from records import Outside, make_run

COMMON = {"base": {"epochs": 2}, "way": 5, "shot": 20, "complement": "resa", "unit_features": False}
AVG = {0: "100.00", 1: "81.53", 2: "63.06", 3: "44.58"}  # by the number of wrong images of four
NEW = {0: "100.00", 1: "75.00", 2: "50.00", 3: "25.00"}


def add(root: Path, wrong: int = 1, seed: int = 0, recipe: str = "small", told: dict | None = None, **changed) -> None:
    """A run of COMMON with a few settings changed, in a folder of its own as `--out` gives it."""
    place = root / "-".join(f"{name}{value}" for name, value in changed.items()).replace("<", "")
    settings = COMMON | changed
    make_run(place, recipe=recipe, seed=seed, wrong=wrong, branches=(), settings=settings, told=told)


def found(*paths: Path) -> list[Sweep]:
    return [sweep for section in sections(report.load(paths)) for sweep in sweeps(section.rows)]


def page(root: Path) -> str:
    return report.write_html([root], root / "report.html").read_text(encoding="utf-8")


def maps(html: str) -> list[str]:
    return re.findall(r'<svg [^>]*aria-label="(?:Avg|new) by .*?</svg>', html)


def said(drawing: str) -> list[str]:
    """What the cells of a map say: both settings and the number."""
    return re.findall(r"<title>(.*?)</title>", drawing)


def texts(drawing: str, style: str) -> list[str]:
    return re.findall(rf'<text class="{style}"[^>]*>(.*?)</text>', drawing)


# ---- which rows form a sweep -----------------------------------------------------------------------------------------


def test_two_numeric_settings_form_a_sweep(tmp_path):
    for way, shot in product((10, 5), (20, 1, 5)):
        add(tmp_path, way=way, shot=shot)
    (sweep,) = found(tmp_path)
    assert (sweep.down, sweep.across) == ("way", "shot")
    assert sweep.axes == ([5, 10], [1, 5, 20])
    assert set(sweep.rows) == set(product((5, 10), (1, 5, 20)))


def test_settings_inside_others_are_swept_by_their_dotted_names(tmp_path):
    for epochs, weight in product((2, 4), (0.0, 1.5)):
        add(tmp_path, base={"epochs": epochs}, weight=weight)
    assert [(sweep.down, sweep.across) for sweep in found(tmp_path)] == [("base.epochs", "weight")]


def test_a_third_setting_that_differs_breaks_the_sweep(tmp_path):
    for way, shot in product((5, 10), (1, 5)):
        add(tmp_path, way=way, shot=shot, query=way + shot)
    assert not found(tmp_path)


@pytest.mark.parametrize("other", [{"complement": "tied"}, {"query": 3}, {"base": {"epochs": 9}}, {"older": None}])
def test_a_row_with_a_third_setting_is_not_part_of_the_sweep(tmp_path, other):
    for way, shot in product((5, 10, 15), (1, 5)):
        add(tmp_path, way=way, shot=shot, **(other if (way, shot) == (5, 1) else {}))
    (sweep,) = found(tmp_path)
    assert set(sweep.rows) == set(product((5, 10, 15), (1, 5))) - {(5, 1)}


def test_words_and_switches_are_no_axes(tmp_path):
    for way, complement, unit in product((5, 10), ("resa", "tied"), (False, True)):
        add(tmp_path, way=way, complement=complement, unit_features=unit)
    assert not found(tmp_path)


def test_a_line_and_a_diagonal_are_no_grid(tmp_path):
    for shot in (1, 5, 10):
        add(tmp_path / "line", shot=shot)
        add(tmp_path / "diagonal", way=shot, shot=shot)
    assert not found(tmp_path / "line")
    assert not found(tmp_path / "diagonal")


def test_three_corners_are_enough_where_they_are_all_there_is(tmp_path):
    for way, shot in ((5, 20), (10, 20), (5, 1)):
        add(tmp_path, way=way, shot=shot)
    (sweep,) = found(tmp_path)
    assert set(sweep.rows) == {(5, 20), (10, 20), (5, 1)}


def test_a_line_beside_a_line_is_no_cross(tmp_path):
    for way, shot in ((5, 1), (10, 1), (20, 2), (20, 3)):
        add(tmp_path, way=way, shot=shot)
    assert not found(tmp_path)


def test_corners_of_large_planes_are_counted_at_once():
    diagonal = {(float(i), float(i)): None for i in range(300)}
    assert Sweep("way", "shot", diagonal).corners == 2
    assert Sweep("way", "shot", diagonal | {(0.0, 1.0): None}).corners == 3
    assert Sweep("way", "shot", diagonal | {(0.0, 1.0): None, (1.0, 0.0): None}).corners == 4


def test_several_settings_changed_one_at_a_time_are_no_sweep(tmp_path):
    for changed in ({}, {"way": 10}, {"shot": 1}, {"query": 3}):
        add(tmp_path, **{"query": 5} | changed)
    assert not found(tmp_path)


def test_every_pair_that_forms_a_grid_is_a_sweep(tmp_path):
    """Two grids through one row, as in the paper's Figure 3; the crosses between them are left out."""
    weights = {"global_weight": 1.0, "local_weight": 1.0}
    for way, shot in product((5, 10), (1, 20)):
        add(tmp_path, **weights, way=way, shot=shot)
    for one, other in product((0.5, 1.0), (1.0, 2.0)):
        if (one, other) != (1.0, 1.0):
            add(tmp_path, global_weight=one, local_weight=other)
    assert {(sweep.down, sweep.across) for sweep in found(tmp_path)} == {
        ("way", "shot"),
        ("global_weight", "local_weight"),
    }


def test_recipe_names_may_differ(tmp_path):
    for way, shot in product((5, 10), (1, 5)):
        add(tmp_path, way=way, shot=shot, recipe=f"way{way}-shot{shot}")
    (sweep,) = found(tmp_path)
    assert len(sweep.rows) == 4
    assert '<p class="sweep">kt_rcnet: way × shot</p>' in page(tmp_path)


def test_a_seed_of_two_recipes_with_the_same_settings_counts_once(tmp_path):
    for way, shot in product((5, 10), (1, 5)):
        add(tmp_path, way=way, shot=shot)
    add(tmp_path / "again", way=5, shot=1, recipe="way5-shot1")
    (sweep,) = found(tmp_path)
    assert [len(row.runs) for row in sweep.rows.values()] == [1] * 4


@pytest.mark.parametrize("apart", [{"protocol": {"shots": 1}}, {"benchmark_fingerprint": "other"}])
def test_another_protocol_or_other_images_are_no_sweep(tmp_path, apart):
    for way, shot in product((5, 10), (1, 5)):
        add(tmp_path, way=way, shot=shot, told=apart if way == 10 else None)
    assert not found(tmp_path)


def test_another_method_and_unfinished_runs_are_no_part(tmp_path):
    for way, shot in product((5, 10), (1, 5)):
        method = "kt_rcnet" if way == 5 else "cosine"
        make_run(tmp_path / f"{way}-{shot}", method=method, settings=COMMON | {"way": way, "shot": shot})
        settings = COMMON | {"way": way + 100, "shot": shot}
        make_run(tmp_path / f"unfinished-{way}-{shot}", finished=2, settings=settings)
    assert not found(tmp_path)


def test_sweeps_of_the_same_settings_are_told_apart(tmp_path):
    for way, shot, query in product((5, 10), (1, 5), (3, 4)):
        add(tmp_path, way=way, shot=shot, query=query)
    names = re.findall(r'<p class="sweep">(.*?)</p>', page(tmp_path))
    assert {name for name in names if "way × shot" in name} == {
        "kt_rcnet · small: way × shot (query 3)",
        "kt_rcnet · small: way × shot (query 4)",
    }
    assert len(names) == 6


# ---- what the page shows ---------------------------------------------------------------------------------------------

WRONG = {(5, 1): 3, (5, 5): 2, (5, 20): 1, (10, 1): 2, (10, 5): 0}  # (10, 20) is missing


@pytest.fixture
def swept(tmp_path: Path) -> str:
    for (way, shot), wrong in WRONG.items():
        add(tmp_path, way=way, shot=shot, wrong=wrong)
    return page(tmp_path)


def test_every_number_stands_in_its_cell(swept):
    average, new = maps(swept)
    for drawing, metric, values in ((average, "Avg", AVG), (new, "new", NEW)):
        expected = [f"way {way}, shot {shot}: {metric} {values[wrong]}" for (way, shot), wrong in WRONG.items()]
        assert said(drawing) == expected
        assert sorted(texts(drawing, "value(?: best)?")) == sorted(values[wrong] for wrong in WRONG.values())
        assert texts(drawing, "value best") == ["100.00"]
        assert drawing.count('class="missing"') == 1


def test_cells_lie_below_and_beside_one_another_in_the_order_of_the_axes(swept):
    for drawing in maps(swept):
        assert texts(drawing, "axis") == ["way ↓", "shot →"]
        assert texts(drawing, "tick")[:5] == ["5", "10", "1", "5", "20"]
        places = re.findall(r'<title>way (\d+), shot (\d+):.*?</title><rect class="shade" x="(\d+)" y="(\d+)"', drawing)
        at = {(int(way), int(shot)): (int(x), int(y)) for way, shot, x, y in places}
        assert at[5, 1][0] == at[10, 1][0] < at[5, 5][0] == at[10, 5][0] < at[5, 20][0]
        assert at[5, 1][1] == at[5, 5][1] == at[5, 20][1] < at[10, 1][1] == at[10, 5][1]


def test_a_higher_value_has_a_deeper_shade(swept):
    average = maps(swept)[0]
    shades = re.findall(r'<title>.*? ([\d.]+)</title><rect [^>]*fill-opacity="([\d.]+)"', average)
    ordered = sorted((float(value), float(opacity)) for value, opacity in shades)
    assert [opacity for _, opacity in ordered] == sorted(opacity for _, opacity in ordered)
    assert ordered[0][1] < ordered[-1][1]


def test_seeds_are_averaged(tmp_path):
    for way, shot in product((5, 10), (1, 5)):
        for seed, wrong in enumerate((0, 2) if (way, shot) == (10, 1) else (1, 1)):
            add(tmp_path, way=way, shot=shot, seed=seed, wrong=wrong)
    assert "way 10, shot 1: new 75.00 ± 35.36" in said(maps(page(tmp_path))[1])


def test_results_files_give_the_same_maps(tmp_path, swept):
    for index, folder in enumerate(sorted(tmp_path.glob("way*"))):
        report.write_results([folder], tmp_path / "results" / str(index))
    assert maps(page(tmp_path / "results")) == maps(swept)


def test_the_page_is_closed_and_stands_alone(swept):
    outside = Outside()
    outside.feed(swept)
    assert not outside.open
    assert not outside.loads
    assert "url(" not in swept
    assert "Two settings at a time" in outside.text


def test_without_a_sweep_there_is_no_card(tmp_path):
    add(tmp_path, way=5)
    add(tmp_path, way=10)
    assert "Two settings at a time" not in page(tmp_path)


def test_names_are_escaped(tmp_path):
    name, recipe = "<b>way", "<i>mine"
    for way, shot in product((5, 10), (1, 5)):
        add(tmp_path, **{name: way}, shot=shot, recipe=recipe.replace("<i>", "i"), told={"recipe": recipe})
    html = page(tmp_path)
    assert name not in html
    assert recipe not in html
    assert len(maps(html)) == 2
    for drawing in maps(html):
        assert f"{escape(name)} ↓" in drawing or f"{escape(name)} →" in drawing


def test_a_heatmap_of_equal_cells_is_drawn(tmp_path):
    for way, shot in product((5, 10), (1, 5)):
        add(tmp_path, way=way, shot=shot, wrong=0)
    for drawing in maps(page(tmp_path)):
        assert texts(drawing, "value") == ["100.00"] * 4
