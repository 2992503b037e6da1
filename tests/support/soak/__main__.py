"""Soak runs of a service on this machine alone, each bounded in count and in time.

python -m soak crash|faults|load|memory|hostile|fuzz [--count N] [--seconds S] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ALL_CORES = ("load",)
COUNTS = {"crash": 200, "faults": 5, "load": 200, "memory": 20_000, "hostile": 1, "fuzz": 20_000}
SECONDS = {"crash": 1800.0, "faults": 600.0, "load": 10.0, "memory": 900.0, "hostile": 10.0, "fuzz": 1800.0}


def run(name: str, folder: Path, count: int, seconds: float, seed: int) -> list[str]:
    """Does one run, tells what was measured, gives what was wrong."""
    from soak import crash, faults, fuzz, hostile, load

    if name == "crash":
        tally = crash.besiege(folder, count, seconds, seed)
        print(tally.text())
        return tally.complaints
    if name == "load":
        return load.measure(folder, seconds, count, print)
    if name == "memory":
        return load.remember(folder, count, seconds, print)
    if name == "fuzz":
        return fuzz.fuzz(folder, count, seconds, seed, print)
    if name == "hostile":
        return hostile.meet(folder, seconds, print)
    return faults.all_of(folder, count, print)


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.splitlines()[0])
    parser.add_argument("run", choices=list(COUNTS))
    parser.add_argument("--count", type=int, help="kills, faults, lessons, requests or mutations")
    parser.add_argument("--seconds", type=float, help="after which it ends; for load and hostile of each measurement")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.run not in ALL_CORES:
        os.environ.update({"OMP_NUM_THREADS": "1", "FSCIL_RUNTIME": "torch"})
    count, seconds = given.count or COUNTS[given.run], given.seconds or SECONDS[given.run]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # also for a service that is not root
        os.environ["XDG_CACHE_HOME"] = name
        complaints = run(given.run, folder, count, seconds, given.seed)
        for log in folder.rglob("service.log") if complaints else ():
            print(log.read_text("utf-8", "replace")[-3000:])
    print(f"{given.run}: {len(complaints)} complaints; {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
    print(*(f"  {complaint}" for complaint in complaints[:20]), sep="\n")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
