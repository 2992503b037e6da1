"""The run folder: settings, predictions and states on disk. Every write is atomic: a kill never costs a file."""

from __future__ import annotations

import fcntl
import json
import os
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.files import FORMAT, IDENTITY, read_json, run_identity, run_of, write_bytes, write_json
from fscil.settings import differences
from fscil.tensors import load_into, read_tensors, write_tensors

ELSEWHERE = "choose another --out (with fscil learn: another --save)"
SURROUNDINGS = ("git", "versions", "machine", "precision")


def _decisive(facts: Mapping[str, Any], key: str) -> Any:
    """A fact about the surroundings; of the precision, which one is used, not whether it was measured or asked for."""
    fact = facts.get(key)
    return fact.get("used") if key == "precision" and fact else fact


def changes(there: Mapping[str, Any], here: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """The settings in which two runs differ, one line each; a setting unknown to the first has its default there."""
    *settings, _ = IDENTITY
    earlier = {key: _completed(there.get(key), defaults.get(key)) for key in settings}
    return differences(earlier, {key: here.get(key) for key in settings})


def _completed(value: Any, default: Any) -> Any:
    """Nested dictionaries with what they lack taken from `default`."""
    if not isinstance(value, Mapping) or not isinstance(default, Mapping):
        return value
    return {**default, **{name: _completed(item, default.get(name)) for name, item in value.items()}}


class RunFolder:
    """One run on disk; docs/running.md tells of the files in it."""

    def __init__(self, path: Path, writable: bool = True, keeps_states: bool = True):
        self.path = path
        self.writable = writable  # only the first of several processes writes
        self.keeps_states = keeps_states  # without them an interrupted run begins again
        self.identity = ""

    def described(self) -> dict[str, Any]:
        """What run.json says; empty before the run has begun."""
        file = self.path / "run.json"
        advice = f"delete this file and run the same command again, or {ELSEWHERE}"
        return read_json(file, advice) if os.access(file, os.F_OK) else {}

    def open(self, description: dict[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        """Starts or continues the run `description` tells of; a folder that holds another run is refused.

        `defaults` are the settings of a run that asks for nothing: one that run.json does not know yet had that value.
        """
        if not self.writable:
            self.identity = self._identity(self.described(), description, defaults or {})
            return
        self._lock()
        try:
            self._begin(description, defaults or {})
        except BaseException:
            self.close()
            raise

    def _identity(self, there: dict[str, Any], here: dict[str, Any], defaults: Mapping[str, Any]) -> str:
        """The digest the run began with, though fscil has learned further settings since."""
        return run_identity(there if there and not changes(there, here, defaults) else here)

    def _begin(self, description: dict[str, Any], defaults: Mapping[str, Any]) -> None:
        """Writes run.json once it is sure that what lies beside it was made with these settings."""
        there = self.described() if self._holds_work() else {}
        self.identity = self._identity(there, description, defaults)
        if there:
            self._check_same(there, description, defaults)
            self._check_states("delete it and run again")
            self._note_changes(there, description)
        else:
            self._check_unclaimed()
            write_json(self.path / "run.json", description)
        for partial in self.path.glob("*.partial"):  # of a process that was killed while it wrote
            partial.unlink()

    def close(self) -> None:
        """Lets other processes use the folder."""
        if self.writable:
            self._lock_file.close()

    def _lock(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock_file = (self.path / ".lock").open("w")
        except OSError as problem:
            reason = problem.strerror
            raise FscilError(f"{self.path} cannot be a run folder ({reason}); {ELSEWHERE}") from problem
        try:
            fcntl.lockf(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, not inherited by loader workers
        except OSError as problem:
            self._lock_file.close()
            raise FscilError(f"another process is working in {self.path}; wait or {ELSEWHERE}") from problem

    def _holds_work(self) -> bool:
        return any(file.name.startswith(("session-", "stage-")) for file in self.path.iterdir())

    def _check_same(self, there: dict[str, Any], here: dict[str, Any], defaults: Mapping[str, Any]) -> None:
        if there.get("format") != FORMAT:
            raise FscilError(f"{self.path} was written by another version of fscil; {ELSEWHERE}")
        changed = changes(there, here, defaults)
        fingerprint = IDENTITY[-1]
        if not changed and there.get(fingerprint) != here.get(fingerprint):
            changed = ["the images of the data set are not those it began with"]
        if changed:
            shown = "; ".join(changed[:3]) + ("; …" if len(changed) > 3 else "")
            raise FscilError(
                f"{self.path} holds a run with other settings ({shown}); delete this folder or {ELSEWHERE}"
            )

    def _check_states(self, advice: str) -> None:
        """Refuses states and checkpoints of another run; one that cannot be read is named by who needs it."""
        for file in sorted([*self.path.glob("state-*.safetensors"), *self.path.glob("stage-*.safetensors")]):
            try:
                owner = run_of(file)
            except FscilError:
                continue
            if owner != self.identity:
                raise FscilError(f"{file} belongs to another run; {advice}")

    def _check_unclaimed(self) -> None:
        """Refuses a folder without run.json in which the settings of this run would be told of other numbers."""
        advice = f"no run.json tells of it: delete {self.path} or {ELSEWHERE}"
        self._check_states(advice)
        if any(self.path.glob("session-*.json")) and not any(self.path.glob("state-*.safetensors")):
            raise FscilError(f"{self.path} holds results of an unknown run; {advice}")

    def _note_changes(self, there: dict[str, Any], here: dict[str, Any]) -> None:
        """A run resumed elsewhere, or with other code, says so each time: its numbers may differ."""
        count = int(here.get("sessions", 0))
        if count and self.finished(count) == count:
            return  # nothing more will be learned
        continued = there.get("continued_with", [])
        before: list[dict[str, Any]] = [continued] if isinstance(continued, dict) else continued  # dict: earlier runs
        latest: ChainMap[str, Any] = ChainMap(*reversed(before), there)
        moved = {key: here.get(key) for key in SURROUNDINGS if _decisive(latest, key) != _decisive(here, key)}
        if moved:
            write_json(self.path / "run.json", {**there, "continued_with": [*before, moved]})

    def finished(self, count: int) -> int:
        """How many of `count` sessions need not be learned again: they are written, and so is the state after them."""
        done = next((t for t in range(count) if not self._written(t)), count)
        while done and not self._session(done - 1, "state", "safetensors").exists():
            done -= 1
        return done

    def _written(self, session: int) -> bool:
        """Whether a session is there, readable and not of another run; predictions of earlier versions do not tell."""
        try:
            read_json(self._session(session, "session", "json"), "")
            return run_of(self._session(session, "predictions", "safetensors")) in (None, self.identity)
        except FscilError:
            return False

    def write_session(
        self,
        session: int,
        state: Mapping[str, Tensor],
        predictions: Mapping[str, np.ndarray],
        record: Mapping[str, Any],
    ) -> None:
        """The results of a session; its JSON file comes last and makes it finished."""
        if self.keeps_states:
            self.write(self._session(session, "state", "safetensors"), state, {})
        labels = {name: values.astype(np.int32) for name, values in predictions.items()}
        content = safetensors.numpy.save(labels, {"notes": json.dumps({"run": self.identity})})
        write_bytes(self._session(session, "predictions", "safetensors"), content)
        write_json(self._session(session, "session", "json"), record)
        self.tidy(session)

    def predictions(self, session: int) -> dict[str, np.ndarray]:
        """The labels that `write_session` wrote."""
        file = self._session(session, "predictions", "safetensors")
        try:
            return safetensors.numpy.load_file(file)
        except (safetensors.SafetensorError, OSError, ValueError) as problem:
            damaged = "cannot be read, or half of it is missing: delete it and run its command again"
            told = damaged if file.exists() else "is missing: run its command again"
            raise FscilError(f"{file} {told}") from problem

    def tidy(self, session: int) -> None:
        """Removes what nobody needs after a finished session: its checkpoints, and the states before.

        Going on needs the newest state; the base state stays for those who teach other classes.
        """
        if self.writable:
            old = [file for t in range(session + 1) for file in self.path.glob(self.stage(t, "*").name)]
            old += [self._session(t, "state", "safetensors") for t in range(1, session)]
            for file in old:
                file.unlink(missing_ok=True)

    def restore(self, module: nn.Module, session: int) -> None:
        """Puts a method back into the state after a finished session."""
        file = self._session(session, "state", "safetensors")
        load_into(module, self.read(file)[0], file)

    def write(self, file: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        """A file of tensors that only this run can read again."""
        if self.writable:
            write_tensors(file, tensors, {**notes, "run": self.identity})

    def read(self, file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and notes of one of this run's files; one that was copied from another run is refused."""
        tensors, notes = read_tensors(file)
        if notes.get("run") != self.identity:
            raise FscilError(f"{file} belongs to another run; delete it and run again")
        return tensors, notes

    def stage(self, session: int, name: str) -> Path:
        """File of a training stage inside a session."""
        return self.path / f"stage-{session:02d}-{name}.safetensors"

    def _session(self, session: int, kind: str, suffix: str) -> Path:
        return self.path / f"{kind}-{session:02d}.{suffix}"
