"""Mutated photos, model files and requests: no crash, no hang, and nothing of what was learned is changed."""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from fscil.errors import FscilError
from fscil.teach.storage import modelfile
from soak import mutants
from soak.crash import ENVIRONMENT, learned
from soak.lives import Life
from soak.visitor import FORM, Gone, Visitor, form

DEADLINE = 30.0  # seconds that a request may take
PATIENCE = 0.4  # seconds after which a client sends no more
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"  # asks for the body; the answer follows
LATE = 5.0  # seconds in which what was sent without waiting for an answer may still be done
SHARES = {"photo": 0.45, "model": 0.20, "request": 0.35}
LONGEST_ANSWER = 100_000  # bytes that are kept
TOGETHER = 16  # photos of a request
STATUS = (
    *range(200, 207),
    304,
    400,
    401,
    403,
    404,
    405,
    408,
    409,
    411,
    412,
    413,
    414,
    415,
    416,
    417,
    421,
    422,
    431,
    501,
    503,
)

Tell = Callable[[str], None]


class Fuzz:
    """One service and its model file, and what is thrown at them."""

    def __init__(self, folder: Path, seed: int):
        self._file, self._seed = learned(folder), seed
        self._content = self._file.read_bytes()
        self._revision = modelfile.load(self._file).revision
        self._spare = folder / "spare.fscil"
        self._photos = mutants.seeds()
        self._life = Life(self._file, folder / "service.log", ENVIRONMENT)
        self._silent = 0.0  # when a request was last sent that got no answer
        self.outcomes: Counter[str] = Counter()
        self.complaints: list[str] = []

    def close(self) -> None:
        self._life.stop()

    def photos(self, numbers: Sequence[int]) -> None:
        """Photos that are asked about; each is answered or named as unreadable."""
        photos = [mutants.photo(self._seed, number, self._photos) for number in numbers]
        begin = time.monotonic()
        try:
            answer = Visitor(self._life.port).ask("POST", "/v1/predict", form(photos), FORM)
        except Gone as problem:
            self._complain("photo", numbers, f"no answer: {problem}")
            return
        told = answer.told()
        bad = len(told.get("unreadable", told.get("photos", ())))
        good = len(told.get("answers", ()))
        self.outcomes["photo read"] += good
        self.outcomes["photo refused"] += bad
        if answer.status not in (200, 422) or good + bad != len(photos):
            self._complain("photo", numbers, f"{answer.status} {answer.body[:300]!r}")
        self._check("photo", numbers, time.monotonic() - begin)

    def model(self, number: int) -> None:
        """A model file is refused in one sentence, or is the model it was."""
        self._spare.write_bytes(mutants.model_file(self._seed, number, self._content))
        begin = time.monotonic()
        try:
            revision = modelfile.load(self._spare).revision
        except FscilError:
            self.outcomes["model refused"] += 1
        except Exception as problem:
            self._complain("model", [number], repr(problem))
        else:
            self.outcomes["model read"] += 1
            if revision != self._revision:
                self._complain("model", [number], "it was read, and is another model")
        if time.monotonic() - begin > DEADLINE:
            self._complain("model", [number], "it took too long")

    def request(self, number: int) -> None:
        """A request gets an answer that is documented, or none; what is accepted is taken back."""
        begin, raw = time.monotonic(), mutants.request(self._seed, number)
        answer = exchanged(self._life.port, raw).removeprefix(CONTINUE)
        status = int(answer[9:12]) if answer[9:12].isdigit() else 0
        self.outcomes[f"request {status // 100}xx" if status else "request without an answer"] += 1
        if status and status not in STATUS:
            self._complain("request", [number], f"{raw[:200]!r} -> {answer[:300]!r}")
        if b"Traceback" in answer or str(self._file.parent).encode() in answer:
            self._complain("request", [number], f"it tells too much: {answer[:300]!r}")
        self._silent = begin if not status else self._silent
        expected = status in (200, 201) or begin < self._silent + LATE
        self._check("request", [number], time.monotonic() - begin, expected)

    def _check(self, kind: str, numbers: Sequence[int], seconds: float, expected: bool = False) -> None:
        if seconds > DEADLINE + 2:
            self._complain(kind, numbers, f"took {seconds:.0f} s")
        if not self._life.alive:
            self._complain(kind, numbers, "the service ended")
            raise Gone("the service ended")
        if self._file.read_bytes() != self._content:
            if not expected:
                self._complain(kind, numbers, "the model was changed, and no success was answered")
            self._restore()

    def _restore(self) -> None:
        """The file as it was; the service takes it over."""
        modelfile.write(modelfile.load(self._bytes()), self._file)
        end = time.monotonic() + DEADLINE
        while Visitor(self._life.port).get("/v1/model")["revision"] != self._revision:
            if time.monotonic() > end:
                raise Gone("the service did not take the old file over")
            time.sleep(0.02)

    def _bytes(self) -> Path:
        self._spare.write_bytes(self._content)
        return self._spare

    def _complain(self, kind: str, numbers: Sequence[int], why: str) -> None:
        self.complaints.append(f"{kind} {numbers[0]} to {numbers[-1]} of seed {self._seed}: {why}")

    def unchanged(self) -> bool:
        """Whether the service still knows what it knew."""
        return bool(Visitor(self._life.port).get("/v1/model")["revision"] == self._revision)


def exchanged(port: int, raw: bytes) -> bytes:
    """The beginning of what comes back for some bytes, until the line is closed."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), DEADLINE + 5) as line:
            line.sendall(raw)
            if not select.select([line], [], [], PATIENCE)[0]:
                line.shutdown(socket.SHUT_WR)  # it may wait for more, and gets none
            while select.select([line], [], [], DEADLINE + 5)[0] and (part := line.recv(65536)):
                answer += part[: LONGEST_ANSWER - len(answer)]
    except OSError:
        pass
    return answer


def fuzz(folder: Path, count: int, seconds: float, seed: int, tell: Tell) -> list[str]:
    """Throws as many mutants as asked for, or as the time allows, of each kind its share."""
    trial, begin, done = Fuzz(folder, seed), time.monotonic(), 0
    wanted = {kind: round(share * count) for kind, share in SHARES.items()}
    try:
        for first in range(0, max(wanted.values()), TOGETHER):
            if time.monotonic() > begin + seconds or len(trial.complaints) > 20:
                break
            now = {kind: range(first, min(first + TOGETHER, most)) for kind, most in wanted.items()}
            if now["photo"]:
                trial.photos(now["photo"])
            for number in now["model"]:
                trial.model(number)
            for number in now["request"]:
                trial.request(number)
            done += sum(map(len, now.values()))
        if not trial.unchanged():
            trial.complaints.append("the service does not know what it knew")
    finally:
        trial.close()
    tell(f"{done} mutants of seed {seed}: {', '.join(f'{n} {what}' for what, n in sorted(trial.outcomes.items()))}")
    return trial.complaints
