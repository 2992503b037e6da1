"""A base that several runs share is trained once, also when they start together or draw other shots."""

import json
import os
import signal
import time
from pathlib import Path

from apart import FINISHED, STEPS, Fate, always_tiny, start, tiny_experiment  # noqa: F401 (fixture)
from fscil.data import Protocol
from fscil.running.experiment import execute


def base_seconds(folder: Path) -> float:
    """Seconds of the base; a run that takes a base over takes its seconds over too, to the last digit."""
    stages = json.loads((folder / "session-00.json").read_text())["stages"]
    return next(stage["seconds"] for stage in stages if stage["name"] == "base")


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_second_of_two_runs_waits_for_the_base_and_takes_it(tmp_path: Path) -> None:
    first, second = (tiny_experiment(tmp_path, method) for method in ("cosine", "kt_rcnet"))
    one, news_of_one = start(first, Fate(STEPS, 3, signal.SIGSTOP))  # in the middle of the base
    assert one.pid
    wait_for(lambda: Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    other, news_of_other = start(second)
    try:
        wait_for(lambda: (second.folder / "run.json").exists())
        assert not news_of_other.poll(1)
    finally:
        os.kill(one.pid, signal.SIGCONT)
    assert (news_of_one.recv(), news_of_other.recv()) == (FINISHED, FINISHED)
    one.join()
    other.join()
    assert base_seconds(first.folder) == base_seconds(second.folder)
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 1


def test_other_shots_and_another_draw_share_the_base_but_another_order_does_not(tmp_path: Path) -> None:
    protocols = {
        "plain": Protocol(),
        "shots": Protocol(shots=2),
        "draw": Protocol(shots_seed=7),
        "order": Protocol(order_seed=1),
    }
    folders = {
        name: execute(tiny_experiment(tmp_path, "cosine", protocol=protocol, variant=name))
        for name, protocol in protocols.items()
    }
    seconds = {name: base_seconds(folder) for name, folder in folders.items()}
    assert seconds["plain"] == seconds["shots"] == seconds["draw"] != seconds["order"]
    assert {folder.parent.name for folder in folders.values()} == {f"cosine-paper-{name}" for name in protocols}
