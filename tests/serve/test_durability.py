"""What is answered is on the disk; what fails leaves no trace; many at once lose nothing."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from fscil import files
from fscil.errors import FscilError
from fscil.serve.app import application
from fscil.serve.problems import Problem
from fscil.serve.settings import Limits, Settings
from fscil.serve.store import FAILED, LOST, Store
from fscil.teach.knowledge.model import Model
from fscil.teach.storage import modelfile
from visitors import sent, until


@pytest.fixture
def store(birds_file: Path) -> Iterator[Store]:
    made = Store(birds_file, 128)
    made.open()
    yield made
    made.close()


def test_write_sync_rename_sync_answer(
    client: TestClient, birds_file: Path, hoopoes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the system calls; while the folder is not synced, nobody is answered and nobody sees the change."""
    events, go_on = [], threading.Event()
    sync, replace = os.fsync, Path.replace

    def noted_sync(number: int) -> None:
        facts = os.fstat(number)
        if stat.S_ISDIR(facts.st_mode):
            events.append("sync folder")
            assert go_on.wait(10)
        else:
            events.append(f"sync {'all' if facts.st_size > 1000 else 'nothing'}")
        sync(number)

    def noted_replace(path: Path, target: Path) -> Path:
        events.append(f"rename to {target.name}")
        return replace(path, target)

    monkeypatch.setattr(files.os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    before = client.get("/v1/model").json()["revision"]
    with ThreadPoolExecutor(1) as pool:
        lesson = pool.submit(client.post, "/v1/classes/hoopoe/photos", files=sent(hoopoes[:2]))
        assert until(lambda: len(events) == 3, 5.0)
        assert not lesson.done()
        assert client.get("/v1/model").json()["revision"] == before
        go_on.set()
        assert lesson.result().json()["revision"] == modelfile.load(birds_file).revision != before
    assert events == ["sync all", "rename to birds.fscil", "sync folder"]


def test_a_full_disk_costs_one_answer(
    client: TestClient, birds_file: Path, hoopoes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = birds_file.read_bytes()

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        answer = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2]))
    assert answer.status_code == 507
    assert str(birds_file.parent) not in answer.text
    assert birds_file.read_bytes() == before
    assert list(birds_file.parent.glob("*.partial")) == []
    assert client.get("/v1/model").json()["classes"] == 6
    assert client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2])).status_code == 201


def failing(of: Callable[[int], bool]) -> Callable[[int], None]:
    """An fsync that fails for some kind of file, as on a disk that dies."""

    def sync(number: int) -> None:
        if of(os.fstat(number).st_mode):
            raise OSError(errno.EIO, "Input/output error")

    return sync


def test_after_a_failed_sync_nothing_is_changed_any_more(
    client: TestClient, birds_file: Path, hoopoes: list[Path], album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel tells such an error once; whoever asks again may hear that all is well, and nothing is."""
    before = birds_file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", failing(stat.S_ISREG))
        answer = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2]))
    assert (answer.status_code, answer.json()["detail"]) == (507, LOST)
    again = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2]))
    assert (again.status_code, again.json()["detail"]) == (507, FAILED)
    assert client.delete("/v1/classes/jay", headers={"If-Match": "*"}).status_code == 507
    assert (birds_file.read_bytes(), list(birds_file.parent.glob("*.partial"))) == (before, [])
    assert (client.get("/ready").status_code, client.get("/ready").json()["detail"]) == (503, FAILED)
    assert client.post("/v1/predict", files=sent([album / "owl" / "1.png"])).json()["answers"][0]["class"] == "owl"
    with TestClient(application(Settings(birds_file)), base_url="http://localhost") as restarted:
        assert restarted.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2])).status_code == 201


def test_a_folder_that_cannot_be_synced_is_no_success(
    client: TestClient, hoopoes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", failing(stat.S_ISDIR))
        answer = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2]))
    assert (answer.status_code, answer.json()["detail"][:23]) == (500, "the change was made, bu")
    assert until(lambda: client.get("/v1/model").json()["classes"] == 7, 1.0)
    assert client.delete("/v1/classes/jay", headers={"If-Match": "*"}).json()["detail"] == FAILED


def test_whoever_gave_up_does_not_stop_the_writer(store: Store, birds_file: Path) -> None:
    """The file cannot be read when the turn comes of a change that nobody waits for any more."""
    content = birds_file.read_bytes()
    with modelfile.held(birds_file):
        waiting = store.submit(lambda model: model.forget("jay"), None)
        assert not until(waiting.running, 0.5)
        assert waiting.cancel()
        with birds_file.open("r+b") as file:
            file.truncate(100)
    assert until(lambda: store.fault is not None, 2.0)
    birds_file.write_bytes(content)
    store.submit(lambda model: model.forget("jay"), None).result(5)


def test_what_is_left_in_a_closed_folder_costs_one_answer(client: TestClient, birds_file: Path) -> None:
    """A folder that is closed while a file is written keeps half of it; nobody can remove that either."""
    left = birds_file.with_name(f"{birds_file.name}.1.partial")
    left.mkdir()  # which no unlink removes, not even root's
    assert client.delete("/v1/classes/jay", headers={"If-Match": "*"}).status_code == 507
    with pytest.raises(FscilError, match="cannot be removed"), modelfile.editing(birds_file):
        pass
    left.rmdir()
    assert client.delete("/v1/classes/jay", headers={"If-Match": "*"}).status_code == 200


def test_many_changes_at_once_are_all_kept(store: Store, birds_file: Path) -> None:
    def rename(number: int) -> None:
        def change(model: Model) -> None:
            label = model.next_label()
            assert label == 6
            model.rename(model.classes[number % 6], f"bird {number}")

        store.submit(change, None).result(20)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(rename, range(48)))
    kept = modelfile.load(birds_file)
    assert len(kept.journal.steps) == 49
    assert store.model.revision == kept.revision


def test_replicas_see_each_other(store: Store, birds_file: Path) -> None:
    """Two services on one file: what one changes, the other sees within a second and builds upon."""
    other = Store(birds_file, 128)
    other.open()
    first = store.submit(lambda model: model.forget("jay"), None).result(5).model.revision
    assert until(lambda: other.model.revision == first, 1.0)
    both = other.submit(lambda model: model.rename("owl", "uhu"), [first]).result(5).model
    assert until(lambda: store.model.revision == both.revision, 1.0)
    assert store.model.classes == ["crow", "kite", "uhu", "robin", "wren"]
    assert store.model.branches[0].encoder is not other.model.branches[0].encoder
    other.close()


def test_a_change_that_fails_leaves_no_trace(store: Store, birds_file: Path) -> None:
    def half(model: Model) -> None:
        model.forget("jay")
        raise RuntimeError("in the middle")

    with modelfile.held(birds_file):  # so that all three are made together
        waiting = [
            store.submit(work, None)
            for work in (lambda m: m.rename("owl", "uhu"), half, lambda m: m.rename("wren", "zaunkönig"))
        ]
        assert not until(lambda: any(one.done() for one in waiting), 0.3)
    assert waiting[0].result(5).model is waiting[2].result(5).model
    assert isinstance(waiting[1].exception(5), RuntimeError)
    with pytest.raises(Problem, match="changed by somebody else"):  # else it would take back the other's
        store.submit(lambda m: m.undo(), [waiting[0].result().revision]).result(5)
    assert waiting[2].result().revision == store.model.revision
    kept = modelfile.load(birds_file)
    assert kept.classes == ["crow", "jay", "kite", "uhu", "robin", "zaunkönig"]


def test_of_two_who_saw_the_same_state_one_is_refused(store: Store, birds_file: Path) -> None:
    seen = [store.model.revision]
    with modelfile.held(birds_file):
        waiting = [store.submit(lambda m, name=name: m.forget(name), seen) for name in ("owl", "jay")]
    outcomes = [one.exception(5) for one in waiting]
    assert outcomes[0] is None
    assert getattr(outcomes[1], "status", None) == 412


def test_a_snapshot_does_not_change_under_those_who_ask(store: Store) -> None:
    before = store.model
    names, revision = list(before.classes), before.revision
    store.submit(lambda model: model.forget("jay"), None).result(5)
    assert (list(before.classes), before.revision, before.branches[0].prototypes.size) == (names, revision, 6)
    assert before.branches[0].encoder is store.model.branches[0].encoder


def test_who_stops_waiting_changes_nothing(birds_file: Path, hoopoes: list[Path]) -> None:
    """Another process holds the file for longer than a request may take."""
    settings = Settings(birds_file, limits=Limits(seconds=0.5))
    with TestClient(application(settings), base_url="http://localhost") as client:
        with modelfile.held(birds_file):
            answer = client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:1]))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert client.patch("/v1/classes/jay", json={"name": "x"}, headers={"If-Match": "*"}).status_code == 200
        assert client.get("/v1/model").json()["classes"] == 6


def test_what_was_accepted_is_finished_before_the_end(birds_file: Path) -> None:
    store = Store(birds_file, 128)
    store.open()
    with modelfile.held(birds_file):
        waiting = [store.submit(lambda m, i=i: m.rename(m.classes[0], f"name {i}"), None) for i in range(3)]
        ending = threading.Thread(target=store.close)
        ending.start()
    ending.join(10)
    assert not ending.is_alive()
    assert all(one.done() for one in waiting)
    assert modelfile.load(birds_file).classes[0] == "name 2"


def test_a_file_that_vanishes_is_said_and_questions_go_on(client: TestClient, birds_file: Path, album: Path) -> None:
    content = birds_file.read_bytes()
    birds_file.unlink()
    assert until(lambda: client.get("/ready").status_code == 503, 2.0)
    assert client.post("/v1/predict", files=sent([album / "owl" / "1.png"])).json()["answers"][0]["class"] == "owl"
    assert client.delete("/v1/classes/owl", headers={"If-Match": "*"}).status_code == 507
    birds_file.write_bytes(content)
    assert until(lambda: client.get("/ready").status_code == 200, 2.0)


def test_a_damaged_file_is_not_taken_over(client: TestClient, birds_file: Path, hoopoes: list[Path]) -> None:
    content = bytearray(birds_file.read_bytes())
    content[-10:] = bytes(10)
    birds_file.write_bytes(content[:-100])
    assert until(lambda: client.get("/ready").status_code == 503, 2.0)
    assert client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:1])).status_code == 507
    assert client.get("/v1/model").json()["classes"] == 6
    assert birds_file.read_bytes() == bytes(content[:-100])
