"""Short versions of the soak runs: kills, faults, hostile visitors, many requests, mutants; and what judges them."""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from soak import crash, faults, fuzz, hostile, load, mutants
from soak.crowd import Client
from soak.ledger import Ledger, replayed
from soak.lives import Life
from soak.rush import rush
from soak.visitor import form, noise

LEARNED = "learned the base classes from 60 photos"


@pytest.fixture
def place(learned_file: Path) -> Iterator[Path]:
    """A folder with a model to serve, which also somebody who is not root may enter: pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(learned_file, folder / "learned.fscil")
        yield folder


def ledger(*texts: str) -> Ledger:
    """One in which changes were promised."""
    book = Ledger()
    for text in texts:
        assert book.change(text, lambda text=text: text)
    return book


def test_a_lost_promise_is_seen() -> None:
    assert ledger("a", "b").complaints([LEARNED, "a", "b"]) == []
    assert ledger("a", "b").complaints([LEARNED, "a"]) == ["promised, but lost (or one of 0 undone): b"]


def test_what_nobody_knows_may_be_there_or_not_but_not_come_later() -> None:
    book = ledger("a")
    for text in ("b", "c"):
        with pytest.raises(ConnectionError):
            book.change(text, lambda: (_ for _ in ()).throw(ConnectionError()))
    assert book.complaints([LEARNED, "a", "b"]) == []
    assert book.complaints([LEARNED, "a", "b", "c"]) == ["refused or undone, but there: c"]
    assert book.complaints([LEARNED, "a"]) == ["promised, but lost (or one of 0 undone): b"]


def test_an_undo_takes_one_change_back() -> None:
    book = ledger("a", "b")
    assert book.change(None, lambda: "b")
    assert book.complaints([LEARNED, "a"]) == []
    assert book.complaints([LEARNED, "a", "b"]) == ["refused or undone, but there: b"]


def test_the_order_of_promises_is_that_of_the_history() -> None:
    assert ledger("a", "b").complaints([LEARNED, "b", "a"]) == ["later in the history than what followed it: a"]


def test_a_change_by_nobody_is_seen() -> None:
    assert ledger("a").complaints([LEARNED, "a", "x", "a"]) == ["twice in the history: a", "asked for by nobody: x"]


def test_a_history_tells_what_is_known() -> None:
    lines = [LEARNED, "taught 'a' from 2 photos", "taught 'a' from 1 photo", "took 1 photo out of 'a'", "forgot 'owl'"]
    assert replayed([*lines, "renamed 'a' to 'b'"], {"owl": 10}) == {"b": 2}


class Window:
    """What a service shows of a model that has forgotten the beginning of its history."""

    def get(self, path: str) -> dict[str, Any]:
        steps = [{"text": "forgot 'b'"}, {"text": "took 1 photo out of 'a'"}]
        shown = {"/v1/history": {"steps": steps}, "/v1/classes": {"classes": [{"name": "a", "photos": 1}]}}
        return {"revision": "r", **shown[path]}


def test_a_history_without_its_beginning_is_no_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("0", 0, Ledger(), 0)
    monkeypatch.setattr(client, "_visitor", Window())
    client._look()
    assert client.complaints == []


def test_kills_cost_no_promise(place: Path) -> None:
    tally = crash.besiege(place, kills=2, seconds=60.0, seed=1)
    assert tally.complaints == []
    assert tally.kills == 2
    assert tally.requests > 0


@pytest.mark.parametrize("fault", faults.FAULTS)
def test_a_fault_costs_no_promise(place: Path, fault: str) -> None:
    try:
        assert faults.FAULTS[fault](place, 1) == []
    except faults.Unable as reason:
        pytest.skip(str(reason))


def test_hostile_visitors_do_not_hold_up_others(place: Path) -> None:
    deeds = (hostile.many_fields, hostile.slow_headers, hostile.bombs)
    assert hostile.meet(place, 0.5, lambda _: None, deeds) == []


def test_memory_does_not_grow(place: Path) -> None:
    lines: list[str] = []
    assert load.remember(place, 400, 60.0, lines.append) == []
    assert lines[0].startswith("memory over 400 requests: ")


def test_a_rush_counts_what_its_visitors_cost(place: Path) -> None:
    """They share the cores with what they measure."""
    life = Life(place / "learned.fscil", place / "service.log", crash.ENVIRONMENT)
    try:
        asked = rush(life.port, itertools.repeat("/v1/predict"), itertools.repeat(form([noise(0)])), 2, 30.0, 20)
    finally:
        life.stop()
    assert asked.statuses == {200: 20}
    assert 0 < asked.processor < 2 * asked.seconds


def test_mutants_change_nothing(place: Path) -> None:
    lines: list[str] = []
    assert fuzz.fuzz(place, 150, 60.0, 0, lines.append) == []
    assert lines[0].startswith("150 mutants of seed 0: ")
    assert "refused" in lines[0]


def test_a_mutant_is_the_same_every_time(learned_file: Path) -> None:
    files, content = mutants.seeds(), learned_file.read_bytes()
    models = [mutants.model_file(3, number, content) for number in range(400)]
    assert models == [mutants.model_file(3, number, content) for number in range(400)]
    for number in range(20):
        assert mutants.photo(3, number, files) == mutants.photo(3, number, files)
        assert mutants.request(3, number) == mutants.request(3, number)
    different = {mutants.photo(3, number, files) for number in range(20)}
    assert len(different) == 20
    assert all(a != b for a, b in itertools.pairwise(mutants.request(3, number) for number in range(20)))
