"""Downloads that continue where they stopped and are used only when complete.

torchvision's `download_url` does neither: it begins anew, under the final name, waits for ever for a silent server, and
goes over from https to http after a failure.
"""

import hashlib
import http.client
import importlib
import shutil
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from fscil.data import expanded
from fscil.errors import FscilError
from fscil.running.progress import Bar

BLOCK = 1 << 18  # bytes per read
PATIENCE = 30  # seconds without an answer


@dataclass(frozen=True)
class Archive:
    """A public archive with one folder of interest."""

    url: str
    md5: str
    folder: str


ARCHIVES = {
    "cifar100": Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        "cifar-100-python",
    ),
    "cub200": Archive(
        "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
        "97eceeb196236b17998738112f37df78",
        "CUB_200_2011",
    ),
}


def fetch(name: str, root: str | Path) -> None:
    """Download and unpack a data set into `root`; does nothing where it is already or has no public source."""
    root = expanded(root)
    if name not in ARCHIVES or importlib.import_module(f"fscil.data.{name}").find(root) is not None:
        return
    if not hasattr(tarfile, "data_filter"):
        raise FscilError(
            "archives cannot be unpacked safely before Python 3.11.4: update Python, or unpack the files yourself"
        )
    archive = ARCHIVES[name]
    target = root / archive.folder
    if target.exists():
        raise FscilError(f"{target} is incomplete: delete it, then the same command downloads it")
    root.mkdir(parents=True, exist_ok=True)
    packed = root / archive.url.rpartition("/")[2]
    if packed.is_file():  # put there by hand
        if not _is_expected(packed, archive):
            advice = "replace it, or delete it and the same command downloads it"
            raise FscilError(f"{packed} is not the file of {archive.url} (wrong checksum): {advice}")
        _unpack(packed, target)
    else:
        part = packed.with_name(packed.name + ".part")
        if not part.is_file() or not _is_expected(part, archive):  # else it was complete but not unpacked
            _download(archive, part, packed)
        _unpack(part, target)
        part.unlink()


def _download(archive: Archive, part: Path, packed: Path) -> None:
    """Fetch what is still missing of the archive; `packed` is where somebody would put it by hand."""
    try:
        _fetch_rest(archive.url, part)
    except urllib.error.HTTPError as error:
        advice = f"try again later, or put the file at {packed} by hand"
        raise FscilError(f"{archive.url} answers {error.code} ({error.reason}): {advice}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise FscilError(f"the download of {archive.url} stopped ({reason}): the same command continues it") from error
    if not _is_expected(part, archive):
        part.unlink()
        raise FscilError(f"{archive.url} was not the expected file (wrong checksum) and is deleted: try again")


def _is_expected(file: Path, archive: Archive) -> bool:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "md5").hexdigest() == archive.md5


def _fetch_rest(url: str, part: Path) -> None:
    """Append the missing bytes; a server that cannot continue sends everything again."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # nothing is missing
            return
        raise
    with answer:
        have = have if answer.status == http.HTTPStatus.PARTIAL_CONTENT else 0
        total = have + int(answer.headers.get("Content-Length", 0))
        with part.open("ab" if have else "wb") as file, Bar(f"downloading {part.stem}", total) as bar:
            while block := answer.read(BLOCK):
                file.write(block)
                bar.advance(file.tell())
            if file.tell() < total:
                raise ConnectionError(f"the server sent {file.tell()} of {total} bytes")


def _unpack(packed: Path, target: Path) -> None:
    """Unpack beside the target and rename, so that a folder with the final name is always complete."""
    workshop = target.with_name(target.name + ".unpacking")
    shutil.rmtree(workshop, ignore_errors=True)
    try:
        with tarfile.open(packed) as archive:
            archive.extractall(workshop, filter="data")
        (workshop / target.name).rename(target)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FscilError(
            f"{packed} cannot be unpacked ({error}): make room or delete the file and try again"
        ) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
