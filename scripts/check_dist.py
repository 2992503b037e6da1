"""Check what was built in a folder: the wheel is the whole package, the source archive is the whole project."""

import sys
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA = ("recipes/*.toml", "report/published*.json", "data/*.json", "py.typed")  # of the package, beside its code
FOLDERS = ("src", "tests", "docs", "results", "benchmarks", "scripts")  # of the source archive, complete
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "Makefile", "pyproject.toml")
LEFTOVERS = ("*/__pycache__/*", "*.egg-info/*", "*/.*")


def wheel_files(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as wheel:
        return set(wheel.namelist())


def source_files(path: Path) -> set[str]:
    """The names in a source archive, without the folder that holds them all."""
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def files_below(folder: Path) -> set[str]:
    """The files on disk below a folder, relative to its parent."""
    names = {path.relative_to(folder.parent).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if not any(fnmatch(f"/{name}", pattern) for pattern in LEFTOVERS)}


def wheel_problems(names: set[str], root: Path) -> Iterator[str]:
    yield from (f"the wheel lacks {name}" for name in sorted(files_below(root / "src" / "fscil") - names))
    for pattern in DATA:
        if not any(fnmatch(name, f"fscil/{pattern}") for name in names):
            yield f"the wheel holds no fscil/{pattern}"
    strangers = {name.partition("/")[0] for name in names if ".dist-info/" not in name} - {"fscil"}
    yield from (f"the wheel would install {name} beside the package" for name in sorted(strangers))


def source_problems(names: set[str], root: Path) -> Iterator[str]:
    for folder in FOLDERS:
        present = files_below(root / folder)
        if not present:
            yield f"there is nothing in {folder} to put into the source archive"
        yield from (f"the source archive lacks {name}" for name in sorted(present - names))
    yield from (f"the source archive lacks {name}" for name in FILES if name not in names)


def problems(dist: Path, root: Path = ROOT) -> list[str]:
    """One sentence for each thing that is missing or too much."""
    wheels, archives = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        return [f"{dist} holds {len(wheels)} wheels and {len(archives)} source archives instead of one of each"]
    return [*wheel_problems(wheel_files(wheels[0]), root), *source_problems(source_files(archives[0]), root)]


def main() -> int:
    sentences = problems(Path(sys.argv[1]))
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    if not sentences:
        print(f"{sys.argv[1]}: the packages are complete")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
