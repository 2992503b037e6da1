"""Photos made on the fly, and models that know them, with the tiny encoder."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscil.teach.base import learning
from fscil.teach.base.fitting import fit_readout
from fscil.teach.base.planning import rows_of
from fscil.teach.base.transfer import Settings
from fscil.teach.knowledge import backbones
from fscil.teach.knowledge.model import Model
from fscil.teach.lessons.looking import look
from fscil.teach.storage import modelfile

BIRDS = ("crow", "jay", "kite", "owl", "robin", "wren")
QUICK = Settings(tasks=30, dropout=0.2)


def picture(kind: int, number: int, size: int = 40) -> Image.Image:
    """A noisy picture of one of many coloured patterns."""
    pattern = np.random.RandomState(kind).randint(0, 255, (4, 4, 3))
    noise = np.random.RandomState(1000 * kind + number).randn(size, size, 3) * 30
    pixels = np.kron(pattern, np.ones((size // 4, size // 4, 1))) + noise
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def photos(folder: Path, kind: int, numbers: range) -> list[Path]:
    """Pictures of one kind as files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}.png" for number in numbers]
    for path, number in zip(paths, numbers, strict=True):
        picture(kind, number).save(path)
    return paths


def empty_model() -> Model:
    return backbones.of_encoder("tiny", pixels=32)


@pytest.fixture(scope="session")
def album(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes of ten photos, one folder per class."""
    root = tmp_path_factory.mktemp("photos")
    for kind, name in enumerate(BIRDS):
        photos(root / name, kind, range(10))
    return root


@pytest.fixture(scope="session")
def learned_file(album: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file that knows the album."""
    model = empty_model()
    sources = [photo for name in BIRDS for photo in sorted((album / name).iterdir())]
    learning.learn(model, sources, [photo.parent.name for photo in sources], settings=QUICK)
    path = tmp_path_factory.mktemp("models") / "birds.fscil"
    modelfile.save(model, path)
    return path


@pytest.fixture
def birds(learned_file: Path) -> Model:
    """A model of its own that knows the album."""
    return modelfile.load(learned_file)


@pytest.fixture
def complemented(album: Path) -> Model:
    """A model that knows the album by two relations, both of which have a say."""
    model = empty_model()
    seen = look(model, sorted(album.glob("*/*.png")))
    names = [photo.parent.name for photo in sorted(album.glob("*/*.png"))]
    features = fit_readout(model.branches, seen.features, rows_of(names))
    model.branches[1].weight.fill_(1.0)
    model.begin(names, features, seen.digests)
    return model


@pytest.fixture
def birds_file(learned_file: Path, tmp_path: Path) -> Path:
    """A copy of the model file."""
    path = tmp_path / "birds.fscil"
    path.write_bytes(learned_file.read_bytes())
    return path


@pytest.fixture
def hoopoes(tmp_path: Path) -> list[Path]:
    """Eight photos of a class that nobody has seen."""
    return photos(tmp_path / "hoopoe", 50, range(8))
