"""`fscil …` on the tiny benchmark in a process of its own, where tests can kill it."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from apart import Fate, on_tiny_images
from fscil.command import cli


def exit_of(folder: Path, tokens: Sequence[str], fate: Fate) -> int | None:
    """How a command ended that was run in a folder; a negative number is that of the signal that ended it."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*sys.path]))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["apart"])  # torch is imported once, not in every process
    process = context.Process(target=_drive, args=(folder, tokens, fate))
    process.start()
    process.join()
    return process.exitcode


def _drive(folder: Path, tokens: Sequence[str], fate: Fate) -> None:
    os.chdir(folder)
    sys.argv = ["fscil", *tokens]
    fate.prepare()
    with on_tiny_images():
        cli.main()
