"""A run folder and a model file of version 0.1.0 are read as on the day they were made.

They come from these commands, with the photos of `albums.album` as `photos` and those of another bird as `hoopoe`:

fscil run kt_rcnet folder --root photos --recipe pocket.toml --precision float32 --base-classes 4 --ways 1 --shots 3
fscil learn photos --save birds.fscil --encoder pocket --pixels 32 --strength transfer
fscil teach birds.fscil hoopoe hoopoe/0.png hoopoe/1.png hoopoe/2.png
fscil forget birds.fscil crow
fscil rename birds.fscil jay magpie
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import pocket  # noqa: F401 (the encoder of these files)
from albums import BIRDS, photos
from apart import differing, results
from commands import Fscil
from fscil import report
from fscil.methods import kt_rcnet
from fscil.report.runs import TOTAL
from fscil.teach.storage import modelfile

OLD = Path(__file__).parents[1] / "support" / "old"
ALBUM_BYTES = 274_473  # of the photos from which the run was made, as Pillow compressed them
AGAIN = "run kt_rcnet folder --root photos --recipe pocket.toml --precision float32 --base-classes 4 --ways 1 --shots 3"


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """The run folder, where the command looks for it."""
    shutil.copy(OLD / "pocket.toml", tmp_path)
    shutil.copytree(OLD / "kt_rcnet-pocket", tmp_path / "runs" / "folder" / "kt_rcnet-pocket")
    return tmp_path / "runs" / "folder" / "kt_rcnet-pocket" / "seed0"


@pytest.fixture
def old_model(tmp_path: Path) -> Path:
    return Path(shutil.copy(OLD / "birds.fscil", tmp_path))


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != ".lock"}


def test_the_report_gives_the_numbers_of_an_old_run(old_run: Path) -> None:
    (record,) = report.load([old_run])
    assert (record.complete, record.macs) == (True, 9535488 + 2 * 147456)
    assert [session.accuracy for session in record.curves[TOTAL].sessions] == [100.0, 100.0, 100.0]
    assert "100.00" in report.table([old_run], "md")


def answers(folder: Path) -> dict[str, Any]:
    """Predictions and compute; states depend on the machine in their last bits."""
    return {name: values for name, values in results(folder).items() if not name.startswith("state")}


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kt_rcnet.Method, "learn_base", None)
    monkeypatch.setattr(kt_rcnet.Method, "learn_new", None)


@pytest.fixture
def old_photos(album: Path, tmp_path: Path) -> None:
    """The photos of the old run, where its command looks for them."""
    shutil.copytree(album, tmp_path / "photos")
    if sum(file.stat().st_size for file in album.rglob("*.png")) != ALBUM_BYTES:
        pytest.skip("this Pillow compresses photos in another way: they are no longer the data of the old run")


@pytest.mark.usefixtures("no_training", "old_photos")
def test_the_same_command_finds_an_old_run_finished_and_trains_nothing(fscil_command: Fscil, old_run: Path) -> None:
    before = content(old_run)
    code, said, complaints = fscil_command(*AGAIN.split())
    assert (code, "100.00" in said) == (0, True), complaints
    assert content(old_run) == before


@pytest.mark.usefixtures("no_training", "old_photos")
def test_a_setting_that_an_old_run_did_not_know_must_have_its_default(fscil_command: Fscil, old_run: Path) -> None:
    before = content(old_run)
    code, said, complaints = fscil_command(*AGAIN.split(), "--unit-means")
    assert code == 2, said
    assert "holds a run with other settings (settings.unit_means: False there, True here)" in complaints
    assert content(old_run) == before


@pytest.mark.usefixtures("old_photos")
def test_an_old_run_that_was_killed_is_resumed(fscil_command: Fscil, old_run: Path) -> None:
    before = answers(old_run)
    (old_run / "session-02.json").unlink()
    (old_run / "state-02.safetensors").unlink()
    code, said, complaints = fscil_command(*AGAIN.split())
    assert (code, "100.00" in said) == (0, True), complaints
    assert differing(before, answers(old_run)) == []


def test_the_encoder_of_an_old_run_learns_photos(fscil_command: Fscil, album: Path, old_run: Path) -> None:
    code, said, complaints = fscil_command(
        "learn", album, "--save", "new.fscil", "--encoder", old_run, "--strength", "prototypes"
    )
    assert (code, "learned 6 classes from 60 photos" in said) == (0, True), complaints
    encoder = modelfile.load("new.fscil").branches[0].encoder
    trained = load_file(old_run / "state-00.safetensors")
    assert torch.equal(encoder.state_dict()["stages.0.0.weight"], trained["branches.0.encoder.stages.0.0.weight"])


def test_an_old_model_file_predicts_as_before(fscil_command: Fscil, album: Path, hoopoes: list[Path]) -> None:
    code, said, complaints = fscil_command("predict", OLD / "birds.fscil", album / "owl" / "0.png", hoopoes[4])
    assert code == 0, complaints
    owl, hoopoe = said.splitlines()
    assert "owl 0.92" in owl
    assert "hoopoe 1.00" in hoopoe


def test_an_old_model_file_is_taught_and_undone_to_its_first_state(
    fscil_command: Fscil, old_model: Path, tmp_path: Path
) -> None:
    as_it_was = modelfile.load(old_model).classes
    stork = photos(tmp_path / "stork", 60, range(5))
    assert fscil_command("teach", old_model, "stork", *stork).code == 0
    assert modelfile.load(old_model).classes == [*as_it_was, "stork"]
    assert "stork" in fscil_command("predict", old_model, stork[4]).out
    known = []
    for _ in range(4):
        assert fscil_command("undo", old_model).code == 0
        known.append(modelfile.load(old_model).classes)
    assert known[0] == as_it_was
    assert known[-1] == list(BIRDS)
    assert "nothing to undo" in fscil_command("undo", old_model).err
