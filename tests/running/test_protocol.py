"""The protocol: what a method gets to see, what is counted, what is written, and what two runs share."""

import json
import mmap
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file, save_file
from torch import Tensor

from apart import always_tiny, differing, nano, results, tiny_experiment  # noqa: F401 (a fixture)
from fscil.data import PUBLISHED
from fscil.data.framing import Draw
from fscil.data.images import FileImages, Framing, Images, TensorImages
from fscil.data.sessions import Benchmark, Session
from fscil.files import remove_abandoned, run_identity
from fscil.methods.shared.method import Method, PlannedStage
from fscil.nn.compute import Meter, counting
from fscil.running import planning, protocol, training
from fscil.running.costs import Cost, forget_peak_memory, peak_memory
from fscil.running.descent import Descent, rate
from fscil.running.experiment import build, execute, plan
from fscil.running.runfolder import RunFolder
from fscil.running.training import Run
from tiny import tiny_ingredients

CPU = torch.device("cpu")


class TouchedTestImages(AssertionError):
    pass


class Log:
    """How often each image was looked at, and how often augmented; while `forbidden`, looking is an error."""

    def __init__(self, images: Images):
        self.looks, self.augmented = torch.zeros(2, len(images), dtype=torch.int64)
        self.forbidden = False

    def note(self, rows: Tensor, augmented: bool = False) -> None:
        if self.forbidden:
            raise TouchedTestImages
        self.looks[rows] += 1
        self.augmented[rows] += augmented


class Watched(TensorImages):
    """Images that cannot be looked at without a note in their log."""

    def __init__(self, images: TensorImages, log: Log):
        super().__init__(images._pixels, images.labels, images._rows)
        self.log = log

    def select(self, indices: Any) -> "Watched":
        return Watched(super().select(indices), self.log)

    @property
    def pixels(self) -> Tensor:
        self.log.note(self._rows)
        return super().pixels

    def joined(self, other: TensorImages) -> TensorImages:
        self.log.note(self._rows)
        return super().joined(other)

    def _crops(self, chunks: Iterable[tuple[Tensor, Draw | None]], framing: Framing) -> Iterator[Tensor]:
        for chunk, chance in chunks:
            self.log.note(self._rows[chunk], augmented=chance is not None)
            yield from super()._crops([(chunk, chance)], framing)


@pytest.fixture
def watched(monkeypatch) -> Benchmark:
    """The tiny benchmark with watched images; its test images are forbidden while a method learns."""
    built = Benchmark("tiny", tiny_ingredients(), PUBLISHED)
    built._test = Watched(built._test, Log(built._test))
    built._train = Watched(built._train, Log(built._train))
    learning = Run.learning

    @contextmanager
    def guarded(run: Run, session: int) -> Iterator[Cost]:
        with learning(run, session) as stage:
            built._test.log.forbidden = True
            yield stage
            built._test.log.forbidden = False

    monkeypatch.setattr(Run, "learning", guarded)
    return built


def learn(method: Method, benchmark: Benchmark, path: Path) -> Run:
    folder = RunFolder(path / "run")
    folder.open({"format": 1})
    run = Run(folder, 0, path / "cache", fingerprint=benchmark.fingerprint())
    protocol.follow(method, benchmark, run)
    return run


def tiny_method(name: str, **changes: Any) -> Method:
    return build(tiny_experiment(Path("unused"), name, changes), "float32", CPU)


def record(folder: Path, session: int = 0) -> dict[str, Any]:
    return json.loads((folder / f"session-{session:02d}.json").read_text())


# ---- what a method gets to see ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kt_rcnet", "cosine"])
def test_no_test_image_is_touched_while_learning(tmp_path, watched, name):
    learn(tiny_method(name), watched, tmp_path)
    assert watched._test.log.looks.min() > 0


def test_a_method_that_cheats_is_caught(tmp_path, watched):
    class Cheat(type(tiny_method("cosine"))):
        def learn_new(self, session: Session, run: Run) -> None:
            peeked = watched.test(session.index)
            list(run.batches(peeked, self.test_framing(session)))

    method = tiny_method("cosine")
    method.__class__ = Cheat
    with pytest.raises(TouchedTestImages):
        learn(method, watched, tmp_path)


def test_the_test_images_of_a_session_begin_with_those_of_the_session_before(tiny):
    sizes = [len(tiny.test(t)) for t in range(tiny.session_count)]
    assert sizes == [60, 80, 100, 120]
    for t in range(1, tiny.session_count):
        assert torch.equal(tiny.test(t).labels[: sizes[t - 1]], tiny.test(t - 1).labels)


@pytest.mark.parametrize("name", ["kt_rcnet", "cosine"])
def test_a_frozen_method_encodes_each_test_image_once_per_run(tmp_path, watched, monkeypatch, name):
    method, encoded = tiny_method(name), []
    for branch in method.branches:
        branch.encoder.register_forward_hook(lambda encoder, images, features: encoded.append(len(features)))
    predict = protocol.Tester.predict

    def counted(tester: protocol.Tester, session: Session) -> dict[str, np.ndarray]:
        before = sum(encoded)
        predictions = predict(tester, session)
        tested.append(sum(encoded) - before)
        return predictions

    tested: list[int] = []
    monkeypatch.setattr(protocol.Tester, "predict", counted)
    learn(method, watched, tmp_path)
    assert tested == [len(method.branches) * images for images in (60, 20, 20, 20)]
    assert watched._test.log.looks.tolist() == [1] * 120


def test_a_run_that_goes_on_encodes_test_images_in_the_batches_of_an_undisturbed_one(tmp_path, tiny):
    """The last digits of a feature depend on which images share a batch."""
    method, batches = tiny_method("cosine"), []
    run = learn(method, tiny, tmp_path)
    method.encoder.register_forward_hook(lambda encoder, images, features: batches.append(len(features)))
    protocol.Tester(method, tiny, run).predict(list(tiny.sessions())[-1])
    assert batches == [60, 20, 20, 20]


@pytest.mark.parametrize("name", ["kt_rcnet", "cosine"])
def test_held_out_images_are_never_trained_on(tmp_path, watched, name):
    """Images kept from training may be looked at (the feature scale is fitted on them), but are never augmented."""
    learn(tiny_method(name, held_out=5), watched, tmp_path)
    base, log = watched.base(5), watched._train.log
    assert len(base.held_out) == 30
    assert log.augmented[base.held_out._rows].tolist() == [0] * 30
    assert (log.augmented[base.train._rows] > 0).all()


# ---- seeds -----------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_results_and_another_seed_others(tmp_path):
    one, again = (results(execute(tiny_experiment(tmp_path / name))) for name in ("one", "again"))
    assert differing(one, again) == []
    other = results(execute(tiny_experiment(tmp_path / "one", seed=1)))
    assert "state-00: branches.0.encoder.stages.0.0.weight" in differing(one, other)


def test_what_is_written_can_be_recomputed_from_the_state(tmp_path, tiny):
    experiment = tiny_experiment(tmp_path)
    folder = execute(experiment)
    method = build(experiment, "float32", CPU)
    store = RunFolder(folder, writable=False)
    store.open(json.loads((folder / "run.json").read_text()))
    store.restore(method, 3)
    images = tiny.test(3)
    session = list(tiny.sessions())[3]
    (x,) = images.batches([torch.arange(len(images))], method.test_framing(session))
    with torch.no_grad():
        predicted = np.asarray(method.classes)[method.eval().scores(x).argmax(1)]
    written = load_file(folder / "predictions-03.safetensors")
    assert np.array_equal(written["predicted"], predicted)
    assert np.array_equal(written["truth"], images.labels)
    assert written.keys() == {"truth", "predicted", "branch.B", "branch.C"}


# ---- precision -------------------------------------------------------------------------------------------------------


@pytest.fixture
def untimed() -> Iterator[None]:
    """No precision has been measured in this process yet, and none of this test's is remembered."""
    planning.block_seconds.cache_clear()
    yield
    planning.block_seconds.cache_clear()


def test_automatic_precision_is_measured_in_under_a_second(untimed):
    began = time.process_time()
    chosen = planning.choose_precision("auto", CPU)
    assert time.process_time() - began < 1
    assert chosen["used"] == min(chosen["block_seconds"], key=chosen["block_seconds"].get)
    assert chosen["block_seconds"].keys() == {"float32", "bfloat16"}


def test_the_runs_of_one_command_share_the_measured_precision(untimed, monkeypatch):
    timed = []
    monkeypatch.setattr(planning, "_time_block", lambda dtype, device: timed.append(dtype) or len(timed))
    assert planning.choose_precision("auto", CPU) == planning.choose_precision("auto", CPU)
    assert timed == [torch.float32, torch.bfloat16]


def test_the_precision_is_stored_and_kept_when_the_run_goes_on(untimed, tmp_path, monkeypatch):
    faster = {torch.float32: 2.0, torch.bfloat16: 1.0}
    monkeypatch.setattr(planning, "_time_block", lambda dtype, device: faster[dtype])
    experiment = tiny_experiment(tmp_path, "cosine", precision="auto")
    folder = execute(experiment)
    stored = {"used": "bfloat16", "block_seconds": {"float32": 2.0, "bfloat16": 1.0}}
    assert json.loads((folder / "run.json").read_text())["precision"] == stored
    faster[torch.float32] = 0.5
    planning.block_seconds.cache_clear()  # as in another process
    assert plan(experiment)["precision"] == stored
    execute(experiment)
    assert "continued_with" not in json.loads((folder / "run.json").read_text())


def test_a_run_tells_each_time_it_went_on_with_something_else(tmp_path):
    told = {"format": 1, "sessions": 2, "git": "old", "versions": {"torch": "2"}, "precision": {"used": "bfloat16"}}

    def go_on(**changes: Any) -> list[dict[str, Any]]:
        folder = RunFolder(tmp_path)
        folder.open({**told, **changes})
        folder.close()
        return json.loads((tmp_path / "run.json").read_text()).get("continued_with", [])

    assert go_on() == []
    (tmp_path / "session-00.json").write_text("{}")
    assert go_on() == []
    measured = {"used": "bfloat16", "block_seconds": {"float32": 2.0, "bfloat16": 1.0}}
    assert go_on(precision=measured) == []  # the same, found in another way
    assert go_on(git="new") == [{"git": "new"}]
    assert go_on(git="new") == [{"git": "new"}]
    float32 = {"precision": {"used": "float32"}}
    assert go_on(git="new", **float32) == [{"git": "new"}, float32]
    assert go_on(**float32) == [{"git": "new"}, float32, {"git": "old"}]
    identity = run_identity(told)
    for name in ("state-00", "predictions-00", "state-01", "predictions-01"):
        save_file({"truth": np.zeros(1)}, tmp_path / f"{name}.safetensors", {"notes": json.dumps({"run": identity})})
    (tmp_path / "session-01.json").write_text("{}")
    assert len(go_on(git="newest")) == 3  # a finished run is only looked at


def test_one_earlier_change_is_kept_as_the_first_of_a_list(tmp_path):
    """Runs of earlier versions hold the last change alone, not in a list."""
    before = {"format": 1, "git": "a", "versions": {"torch": "2"}, "continued_with": {"versions": {"torch": "3"}}}
    (tmp_path / "run.json").write_text(json.dumps(before))
    (tmp_path / "session-00.json").write_text("{}")
    folder = RunFolder(tmp_path)
    folder.open({"format": 1, "git": "b", "versions": {"torch": "3"}})
    folder.close()
    assert folder.described()["continued_with"] == [{"versions": {"torch": "3"}}, {"git": "b"}]


# ---- compute ---------------------------------------------------------------------------------------------------------

VARIANTS = [
    ("cosine", {}),
    ("cosine", {"base.pixels": (8, 16), "base.epochs": 3, "views": "flip+shift"}),
    ("kt_rcnet", {}),
    ("kt_rcnet", {"complement": "conventional", "feature_scale": 1.0, "views": "flip"}),
    ("kt_rcnet", {"complement": "tied", "held_out": 0, "feature_scale": 1.0}),
    ("kt_rcnet", {"start": "own", "base.pixels": (8, 16)}),
    ("kt_rcnet", {"synthesis": "none", "base_relation": 0.0, "base.batch": 37}),
    ("kt_rcnet", {"synthesis": "mixup", "global_weight": 0.0, "task_pixels": 12}),
]


@pytest.mark.parametrize(("name", "changes"), VARIANTS)
def test_compute_is_counted_as_planned(tmp_path, name, changes):
    experiment = tiny_experiment(tmp_path, name, changes)
    planned = plan(experiment)
    counted = record(execute(experiment))
    assert counted["macs"] == planned["macs"] > 0
    for stage in counted["stages"]:
        rows = [row for row in planned["stages"] if re.sub(r" at \d+ px$", "", row["stage"]) == stage["name"]]
        assert stage["steps"] == sum(row["steps"] for row in rows)
        assert stage["images"] == sum(row["trained"] for row in rows) > 0


def test_more_processes_on_the_same_cores_save_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "_seconds", lambda stage, encoder: 10.0)
    monkeypatch.setattr(planning, "_reading_seconds", lambda method, base: 0.0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("fscil.running.devices.usable_cores", lambda: 2)
    alone, both = (plan(tiny_experiment(tmp_path, devices=count))["seconds"] for count in (1, 2))
    assert both == alone > 0


def test_steps_that_no_image_passes_take_time_and_no_compute(tmp_path, monkeypatch):
    monkeypatch.setattr("fscil.methods.kt_rcnet.Method.step_seconds", lambda method, base, run: 100.0)
    map_of, tied = (
        plan(tiny_experiment(tmp_path, changes={"trains": "map", "complement": arm})) for arm in ("resa", "tied")
    )
    (steps,) = (row for row in map_of["stages"] if row["stage"] == "RESA")
    assert (steps["seconds"], steps["macs"], steps["steps"]) == (800.0, 0, 8)
    assert map_of["seconds"] >= 800.0 > tied["seconds"]
    assert map_of["memory_bytes"] == tied["memory_bytes"]


def test_a_plan_counts_the_time_of_reading_files(tmp_path, monkeypatch):
    def slow(path: str) -> Image.Image:
        time.sleep(0.01)
        return Image.new("RGB", (20, 20))

    monkeypatch.setattr("fscil.data.images.decode", slow)
    files = FileImages([tmp_path / "none.jpg"] * 30, torch.zeros(30), workers=2)
    base = Session(index=0, classes=(0,), train=files, mean=(0.5,) * 3, std=(0.5,) * 3, flips=True)
    method = build(tiny_experiment(tmp_path, "cosine"), "float32", CPU)
    assert 0.005 <= planning._reading_seconds(method, base) < 0.05  # two workers share the 0.01 s


def test_a_timed_step_waits_for_its_device_and_has_the_layout_of_training(monkeypatch):
    encoder, waited, layouts = nano(16, None), [], []
    encoder.register_forward_pre_hook(
        lambda encoder, inputs: layouts.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    monkeypatch.setattr(planning, "_wait", waited.append)
    monkeypatch.setattr(planning, "TIMED", {})
    assert planning._seconds(PlannedStage("base", 16, 1, 4, 4, 0), encoder) > 0
    assert (waited, layouts) == ([CPU, CPU], [True, True])


def test_a_kind_of_step_is_timed_once(monkeypatch):
    timed = []
    monkeypatch.setattr(planning, "TIMED", {})
    monkeypatch.setattr(planning, "_time_step", lambda encoder, images, trained: timed.append(trained) or 1.0)
    stages = [PlannedStage("base", 16, steps, 4, 4 * steps, 0) for steps in (1, 3)]
    short, long = (planning._seconds(stage, nano(16, None)) for stage in stages)
    assert (3 * short, timed) == (long, [True, True])  # two steps, of which the first warms up
    planning._seconds(PlannedStage("prototypes", 16, 1, 4, 0, 4), nano(16, None))
    planning._seconds(PlannedStage("base at 32 px", 32, 1, 4, 4, 0), nano(32, None))
    assert timed == [True, True, False, False, True, True]


def test_an_image_trained_on_counts_three_forward_passes():
    encoder, meter = nano(16, None), Meter()
    with counting(meter):
        encoder(torch.zeros(5, 3, 16, 16))
    assert (meter.macs, meter.trained) == (3 * 5 * encoder.macs(16), 5)
    with counting(meter), torch.no_grad():
        encoder(torch.zeros(7, 3, 16, 16))
    assert (meter.macs, meter.trained) == ((3 * 5 + 7) * encoder.macs(16), 5)
    first, second = 3 * 8 * 9 * 8 * 8, 8 * 16 * 9 * 4 * 4  # channels in x out x kernel x output positions
    assert encoder.macs(16) == first + second


def test_speed_and_memory_are_recorded(tmp_path):
    folder = execute(tiny_experiment(tmp_path))
    base = record(folder)
    images = sum(stage["images"] for stage in base["stages"])
    assert base["images_per_second"] == pytest.approx(images / base["learn_seconds"])
    assert 10e6 < base["peak_memory_bytes"] < 100e9
    assert all(record(folder, t)["learn_seconds"] > 0 and record(folder, t)["test_seconds"] > 0 for t in range(4))


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="this system cannot forget a peak")
def test_the_memory_of_a_run_is_not_that_of_what_was_run_before(tmp_path):
    forget_peak_memory()  # of the tests before, which may have been higher
    with mmap.mmap(-1, 2**30) as memory:  # given back at once, also where tests before made malloc keep what it has
        memory.write(bytes(2**30))
    before = peak_memory()
    assert record(execute(tiny_experiment(tmp_path, "cosine")))["peak_memory_bytes"] < before - 100e6


def test_methods_share_the_trained_base(tmp_path):
    execute(tiny_experiment(tmp_path, "cosine"))
    steps: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        from fscil.running.stages import Loop

        descend = Loop.descend
        patch.setattr(Loop, "descend", lambda loop, *rest: (steps.append(loop.name), descend(loop, *rest))[1])
        folder = execute(tiny_experiment(tmp_path))
    assert set(steps) == {"RESA"}
    alone = execute(tiny_experiment(tmp_path / "alone"))
    assert differing(results(folder), results(alone)) == []  # its compute includes the base's
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 1


def test_a_base_that_other_code_trained_is_not_taken_over(tmp_path, monkeypatch):
    execute(tiny_experiment(tmp_path, "cosine"))
    monkeypatch.setattr(training, "code_digest", lambda: "of other code")
    execute(tiny_experiment(tmp_path))
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 2


def test_the_code_of_a_base_is_that_of_nets_images_and_training():
    package = Path(training.__file__).parent.parent
    files = {
        pattern: [file.relative_to(package).as_posix() for file in package.glob(pattern)]
        for pattern in training.DECISIVE
    }
    assert [pattern for pattern, matches in files.items() if not matches] == []  # a file that moved is missed
    decisive = {file for matches in files.values() for file in matches}
    assert {"nn/encoders.py", "data/framing.py", "running/stages.py", "methods/shared/base.py"} <= decisive
    assert training.code_digest() == training.code_digest()


def test_the_code_of_a_base_is_that_which_was_imported():
    """Later cells of an experiment compute with what was imported, whatever has become of the files."""
    code = "from fscil.running import training; print(training.code_digest.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=True)
    assert done.stdout == "1\n"


def test_what_a_killed_process_left_in_the_cache_is_removed_after_a_day(tmp_path):
    old, young, kept = (tmp_path / name for name in ("a.7.partial", "b.8.partial", "base-1.safetensors"))
    for file in (old, young, kept):
        file.write_text("half a file")
    for file in (old, kept):
        os.utime(file, (time.time() - 2 * 24 * 3600,) * 2)
    remove_abandoned(tmp_path)
    remove_abandoned(tmp_path / "absent")
    assert sorted(tmp_path.iterdir()) == [young, kept]


@pytest.mark.parametrize("changes", [{"base.lr": 0.01}, {"pixels": 8}, {"augment.flip": False}, {"held_out": 6}])
def test_other_settings_do_not_share_a_base(tmp_path, changes):
    execute(tiny_experiment(tmp_path, "cosine"))
    execute(tiny_experiment(tmp_path / "other", "cosine", changes))
    shared, other = (next((out / "cache").iterdir()).name for out in (tmp_path, tmp_path / "other"))
    assert shared != other


# ---- the loop of training --------------------------------------------------------------------------------------------


def test_an_epoch_shows_every_image_once_in_batches_of_equal_size(run, tiny):
    images = tiny.base().train
    framing = Framing(16, tiny.mean, tiny.std, tiny_method("cosine").config.augment)
    net = nano(16, None)
    for epoch in run.epochs("base", net, net, Descent(epochs=1), 5):
        labels = []
        for x, y in epoch.batches(images, framing, 43):
            labels.append(y)
            epoch.step(net(x).square().mean())
    assert [len(y) for y in labels] == [36] * 5
    assert torch.equal(torch.cat(labels).bincount(), images.labels.bincount())


def test_an_epoch_that_is_not_finished_is_a_mistake_of_the_method(run):
    net = nano(16, None)
    with pytest.raises(RuntimeError, match="made 0 of 5 steps"):
        list(run.epochs("base", net, net, Descent(epochs=1), 5))


def test_the_course_of_the_learning_rate():
    step = Descent(epochs=10, step_epochs=4, gamma=0.1)
    assert [rate(step, done) for done in (0, 0.39, 0.4, 0.8)] == pytest.approx([1, 1, 0.1, 0.01])
    listed = Descent(epochs=10, milestones=(2, 7), gamma=0.5)
    assert [rate(listed, done) for done in (0.19, 0.2, 0.7)] == pytest.approx([1, 0.5, 0.25])
    linear = Descent(epochs=10, schedule="linear", warmup=0.2)
    assert [rate(linear, done) for done in (0.1, 0.2, 0.6, 1)] == pytest.approx([0.5, 1, 0.5, 0])
    cosine = Descent(epochs=10, schedule="cosine")
    assert [rate(cosine, done) for done in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])
