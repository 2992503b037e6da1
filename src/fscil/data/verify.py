"""A look at a data set before it is used: its sessions, and everything that is wrong with its files."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path

from fscil.data import PUBLISHED, Protocol, cut
from fscil.data.decoding import over_files
from fscil.data.images import FileImages, Ingredients, decode
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError


@dataclass(frozen=True)
class SessionSummary:
    """One line of the session table."""

    session: int
    classes: tuple[str, ...]
    train: int  # training images of this session
    test: int  # test images of all classes seen so far


@dataclass(frozen=True)
class Inspection:
    """What `fscil data` prints."""

    name: str
    rows: tuple[SessionSummary, ...]
    unreadable: tuple[str, ...]  # sentences that name the file
    duplicates: tuple[tuple[str, ...], ...]  # groups of files with the same content
    too_few: tuple[str, ...]  # classes with fewer training images than shots
    untested: tuple[str, ...]  # classes without a test image
    published: bool | None  # whether the lists equal the published ones; None: nothing is published for this protocol
    differing: tuple[int, ...]  # sessions whose lists differ from the published ones


def inspect(name: str, root: str | Path | None = None, protocol: Protocol = PUBLISHED) -> Inspection:
    """Read every file of a data set once and compare its session lists with the published ones."""
    found, used = cut(name, root, protocol)
    benchmark = Benchmark(name, found, used)
    unreadable, duplicates = _scan(found)
    digests = published_digests().get(name) if protocol == PUBLISHED else None
    differing = None if digests is None else differing_sessions(digests, benchmark, found)
    return Inspection(
        name=name,
        rows=tuple(_row(benchmark, t) for t in range(benchmark.session_count)),
        unreadable=unreadable,
        duplicates=duplicates,
        too_few=tuple(benchmark.class_names[label] for label in benchmark.too_few()),
        untested=tuple(benchmark.class_names[label] for label in benchmark.untested()),
        published=None if differing is None else not differing,
        differing=differing or (),
    )


def _row(benchmark: Benchmark, session: int) -> SessionSummary:
    classes = tuple(benchmark.class_names[label] for label in benchmark.session_classes[session])
    return SessionSummary(session, classes, len(benchmark.train_indices(session)), len(benchmark.test(session)))


def _scan(found: Ingredients) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The unreadable files and the groups of equal files."""
    paths = [path for images in (found.train, found.test) if isinstance(images, FileImages) for path in images.paths]
    unreadable, by_digest = [], defaultdict(list)
    for path, (digest, complaint) in zip(paths, over_files(_examine, paths, "reading every image"), strict=True):
        if complaint:
            unreadable.append(complaint)
        if digest:
            by_digest[digest].append(path)
    return tuple(unreadable), tuple(tuple(group) for group in by_digest.values() if len(group) > 1)


def _examine(path: str) -> tuple[str, str]:
    """Digest of a file's content and what is wrong with it, each empty if there is none."""
    try:
        decode(path)
        complaint = ""
    except FscilError as error:
        complaint = str(error)
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest(), complaint
    except OSError:
        return "", complaint


def published_digests() -> dict[str, list[str]]:
    """For each published data set the `list_digest` of each session of the lists of TOPIC (Tao et al. 2020)."""
    digests: dict[str, list[str]] = json.loads(files("fscil.data").joinpath("digests.json").read_text())
    return digests


def differing_sessions(digests: Sequence[str], benchmark: Benchmark, found: Ingredients) -> tuple[int, ...]:
    """The sessions whose training lists do not have these digests."""
    own = [list_digest(benchmark, found, t) for t in range(benchmark.session_count)]
    return tuple(t for t, pair in enumerate(zip_longest(own, digests)) if pair[0] != pair[1])


def list_digest(benchmark: Benchmark, found: Ingredients, session: int) -> str:
    """SHA-256 of a session's training list, one image per line."""
    lines = (found.train_names[i] + "\n" for i in benchmark.train_indices(session).tolist())
    return hashlib.sha256("".join(lines).encode()).hexdigest()
