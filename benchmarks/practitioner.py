"""CUB-200 as somebody with photos would use it: 100 species learned, 100 more taught from five photos each.

    python benchmarks/practitioner.py data/CUB_200_2011 out.json --views flip

The five photos are those of the benchmark's sessions, the test photos the official ones. They are looked at once, when
everything has been taught: a class that comes later does not change the scores of the classes before it, so that what
the model would have said after each ten classes are the first columns of what it says at the end, with the threshold of
"not sure" as it was then. `--tune` reads no test photo: of the first 100 species 67 are learned, 33 taught, and all
tested on training photos that were kept aside.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import fscil
import resultfile
from fscil import Classifier, metrics
from fscil.data import Protocol
from fscil.data.sessions import Benchmark, Session
from fscil.nn.compute import Meter, counting
from fscil.report.results import metrics_to_json, rounded
from fscil.teach.base.fitting import DEFAULTS
from fscil.teach.knowledge.calibration import Calibration, auroc
from fscil.teach.lessons.looking import glance


def photos(session: Session, sessions: Benchmark) -> tuple[list[str], list[str]]:
    """Files and class names of the training photos of a session."""
    return list(session.train.paths), [sessions.class_names[label] for label in session.train.labels.tolist()]


def taught(birds: Classifier, sessions: Benchmark, later: Iterator[Session]) -> tuple[list[float], list[Calibration]]:
    """Teaches one class after the other; gives the seconds that each took, and the calibration after each session."""
    seconds, calibrations = [], [birds.model_.calibration]
    for session in later:
        files, names = photos(session, sessions)
        for name in dict.fromkeys(names):
            began = time.perf_counter()
            birds.partial_fit([f for f, n in zip(files, names, strict=True) if n == name], [name] * sessions.shots)
            seconds.append(time.perf_counter() - began)
        calibrations.append(birds.model_.calibration)
    return seconds, calibrations


def measured(
    birds: Classifier, sessions: Benchmark, calibrations: Sequence[Calibration]
) -> tuple[metrics.RunMetrics, dict[str, list[float | None]]]:
    """Metrics after each session, and how unknown photos fare: the test photos of the classes still to come."""
    test = sessions.test(sessions.session_count - 1)
    truth = test.labels.numpy()
    column = {name: i for i, name in enumerate(birds.classes_.tolist())}
    features, order = (
        glance(birds.model_, list(test.paths), "test photos").features,
        [column[n] for n in names_of(sessions)],
    )
    scores, evidence = (part[:, order] for part in (birds.model_.scores(features), birds.model_.evidence(features)))
    first_seen, tests = sessions.first_seen, []
    unknown: dict[str, list[float | None]] = {"auroc": [], "taken_for_known": [], "known_not_sure": []}
    session = np.array([first_seen[label] for label in truth.tolist()])
    for t in range(sessions.session_count):
        count, known = sessions.base_classes + t * sessions.ways, session <= t
        seen, fits = scores[:, :count], evidence[:, :count]
        tests.append((truth[known], np.array(sessions.order)[seen[known].argmax(1).numpy()]))
        fit, sure = calibrations[t].fit_of(fits), calibrations[t].known(fits).double()
        unknown["auroc"].append(rounded(auroc(fit[known], fit[~known])))
        unknown["taken_for_known"].append(rounded(float(sure[~known].mean())))
        unknown["known_not_sure"].append(rounded(float(1 - sure[known].mean())))
    return metrics.run_metrics(tests, first_seen), unknown


def names_of(sessions: Benchmark) -> list[str]:
    """Class names in the order in which the classes come."""
    return [sessions.class_names[label] for label in sessions.order]


def looking(birds: Classifier, files: list[str]) -> float:
    """Seconds to encode photos once, from every tenth of them."""
    began = time.perf_counter()
    glance(birds.model_, files[::10])
    return (time.perf_counter() - began) * len(files) / len(files[::10])


def run(root: Path, encoder: str, strength: str, views: str, seed: int, tune: bool) -> dict[str, Any]:
    sessions = fscil.benchmark("cub200", root=root, protocol=Protocol(tune=tune))
    began, meter = time.perf_counter(), Meter()
    base, *later = sessions.sessions()
    birds = Classifier(encoder, strength=strength, views=views, random_state=seed)
    with counting(meter):
        birds.fit(*photos(base, sessions))
        learned = time.perf_counter() - began
        each, calibrations = taught(birds, sessions, iter(later))
    result, unknown = measured(birds, sessions, calibrations)
    branches = [{"relation": b.relation, "weight": float(b.weight)} for b in birds.model_.branches]
    return {
        "kind": "fscil practitioner",
        "dataset": "cub200",
        "seed": seed,
        "settings": birds.get_params() | {"transfer": asdict(DEFAULTS), "branches": branches},
        "strength": birds.model_.origin.strength,
        **resultfile.facts(began, meter),
        "learn_seconds": learned,
        "looking_seconds": looking(birds, photos(base, sessions)[0]),
        "teach_seconds": {"median": float(np.median(each)), "most": max(each)},
        "unknown": unknown,
        "calibration": asdict(birds.model_.calibration),
        "metrics": {"sum": metrics_to_json(result)},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="folder CUB_200_2011")
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--encoder", default="efficientnet_lite0")
    parser.add_argument("--strength", choices=("auto", "prototypes", "transfer"), default="auto")
    parser.add_argument("--views", choices=("one", "flip"), default="one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tune", action="store_true", help="test on base classes held out as new ones instead")
    given = parser.parse_args()
    result = run(given.root, given.encoder, given.strength, given.views, given.seed, given.tune)
    resultfile.write(result, given.out)
    total = result["metrics"]["sum"]
    print(f"{given.out}: {total['accuracy']}, average {total['average']:.2f}")
