"""What a real service asks of the system when it keeps a change, seen from outside: nothing in it is replaced."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from processes import serving
from visitors import sent

CALLS = "trace=write,writev,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,sendto,sendmsg"
LINE = re.compile(r"(?P<thread>\d+) +(?:<\.\.\. )?(?P<call>\w+)(?: resumed>|\()(?P<rest>.*)")
STARTED = "<unfinished ...>"


@pytest.fixture
def strace(tmp_path: Path) -> list[str]:
    """What starts a command and notes some system calls of all its threads, with the paths of open files."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace, which sees system calls, is not there: apt-get install strace")
    command = [program, "-f", "--seccomp-bpf", "-y", "-s", "40", "-e", CALLS, "-e", "signal=none"]
    if subprocess.run([*command, "-o", tmp_path / "probe", "true"], capture_output=True).returncode:
        pytest.skip("strace may not look at other processes here")
    return [*command, "-o", str(tmp_path / "calls")]


def calls(log: Path) -> Iterator[tuple[str, str]]:
    """System calls and what they were about: what goes to the disk in the order of its ends, answers of their begins.

    So an order that is seen here holds: each thing was over before the next one began.
    """
    begun: dict[str, str] = {}
    for line in log.read_text("utf-8", "replace").splitlines():
        if (found := LINE.match(line)) is None:
            continue
        thread, call, rest = found.groups()
        sends = call.startswith("send")
        if rest.endswith(STARTED):
            begun[thread] = rest.removesuffix(STARTED)
            if sends:
                yield call, rest
        elif " resumed>" in line:
            if not sends:
                yield call, begun.pop(thread) + rest
        else:
            yield call, rest


def told(call: str, rest: str, file: Path) -> str | None:
    """A system call in plain words, if it is about a model file or an answer."""
    if call.startswith("send") and "HTTP/1.1 " in rest:
        return f"answer {rest.partition('HTTP/1.1 ')[2][:3]}"
    if f"{file}." not in rest and f"<{file.parent}>" not in rest:
        return None
    assert not re.search(r"= -1 E", rest), rest
    if call.startswith("rename"):
        assert re.search(rf'\.partial".*"{re.escape(str(file))}"', rest), rest
        return "rename"
    kind = {"fsync": "sync", "fdatasync": "sync"}.get(call, "write")
    return f"{kind} {'folder' if f'<{file.parent}>' in rest else 'file'}"


def test_write_sync_rename_sync_answer(
    strace: list[str], birds_file: Path, hoopoes: list[Path], tmp_path: Path
) -> None:
    headers = {"If-Match": "*"}
    with serving(birds_file, below=strace) as (_, address), httpx.Client(base_url=address, timeout=60) as client:
        assert client.post("/v1/classes/hoopoe/photos", files=sent(hoopoes[:2])).status_code == 201
        assert client.patch("/v1/classes/hoopoe", json={"name": "Wiedehopf"}, headers=headers).status_code == 200
        assert client.delete("/v1/classes/Wiedehopf", headers=headers).status_code == 200
        assert client.post("/v1/undo", headers=headers).status_code == 200
    seen = [word for call, rest in calls(tmp_path / "calls") if (word := told(call, rest, birds_file.resolve()))]
    once = [word for i, word in enumerate(seen) if word != "write file" or seen[i - 1 : i] != ["write file"]]
    kept = ["write file", "sync file", "rename", "sync folder"]
    assert once == [*kept, "answer 201", *kept, "answer 200", *kept, "answer 200", *kept, "answer 200"]
