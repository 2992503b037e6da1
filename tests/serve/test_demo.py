"""The model to try the studio with: made in seconds without any data, and kept with what it was taught."""

from pathlib import Path

import numpy as np

from commands import Fscil
from fscil.serve import demo
from fscil.teach.storage import modelfile


def test_it_is_made_with_pictures_to_teach_and_to_test(tmp_path: Path) -> None:
    file = demo.make_demo(tmp_path, "tiny")
    model = modelfile.load(file)
    assert list(model.names.values()) == list(demo.KNOWN)
    assert len(model.album.pictures) == demo.LEARNED * len(demo.KNOWN)
    assert {folder.name for folder in (tmp_path / "teach").iterdir()} == set(demo.NEW)
    assert {folder.name for folder in (tmp_path / "test").iterdir()} == {*demo.KNOWN, *demo.NEW}
    assert len(list((tmp_path / "teach" / "moon").iterdir())) == demo.TAUGHT


def test_what_it_was_taught_is_kept(tmp_path: Path) -> None:
    file = demo.make_demo(tmp_path, "tiny")
    with modelfile.editing(file) as model:
        model.rename("sun", "sunshine")
    assert demo.make_demo(tmp_path, "tiny") == file
    assert "sunshine" in modelfile.load(file).names.values()


def test_pictures_of_a_thing_differ_and_are_the_same_every_time() -> None:
    first, again = demo.draw("☂", 4), demo.draw("☂", 4)
    assert [one.tobytes() for one in first] == [one.tobytes() for one in again]
    assert len({one.tobytes() for one in first}) == 4
    assert all(np.asarray(one).std() > 10 for one in first)


def test_a_model_and_a_demo_are_one_too_many(fscil_command: Fscil) -> None:
    assert "--demo makes its own model; omit a.fscil" in fscil_command("serve", "a.fscil", "--demo").err
    assert "name a model file, or give --demo" in fscil_command("serve").err
