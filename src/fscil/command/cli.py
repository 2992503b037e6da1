"""The command `fscil`: one function per verb. Nothing here imports torch before a verb needs it."""

import io
import os
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

import fscil
from fscil import data, methods, settings
from fscil.command import ask, choices, correct, learn, serve, show, teach
from fscil.command.encoders import list_encoders
from fscil.command.experiment import experiment as run_experiment
from fscil.command.options import Count, Whole, with_options
from fscil.errors import FscilError
from fscil.settings.fields import flatten

if TYPE_CHECKING:
    from fscil.running.experiment import RunSpec

Dataset = Annotated[str, Parameter(help=", ".join(data.names()))]
Root = Annotated[Path | None, Parameter(help="folder of the data [default: $FSCIL_DATA, else ./data]")]
Recipe = Annotated[
    str | None, Parameter(help="name (see fscil methods) or .toml file [default: small, if the method has it]")
]
Precision = Literal["auto", "float32", "bfloat16"]
Out = Annotated[Path, Parameter(help="folder that holds the run folders")]
Runs = Annotated[
    list[Path], Parameter(help="run folders, folders that contain run folders, or results files", negative=())
]
Folders = Annotated[list[Path], Parameter(help="run folders, or folders that contain run folders", negative=())]
Format = Literal["html", "md", "csv", "latex"]


def run(
    method: Annotated[str, Parameter(help="a method, several with commas between them, or all")],
    dataset: Dataset,
    /,
    *,
    root: Root = None,
    recipe: Recipe = None,
    seeds: Annotated[Count, Parameter(help="number of runs, each with its own seed")] = 1,
    seed: Annotated[Whole, Parameter(help="first seed")] = 0,
    devices: Annotated[Count, Parameter(help="processes that share the work, one per GPU or CPU core")] = 1,
    precision: Annotated[Precision, Parameter(help="auto: the faster one, found by a short measurement")] = "auto",
    out: Out = Path("runs"),
    keep_features: Annotated[
        bool,
        Parameter(help="keep features of frozen encoders in OUT/cache, for other runs", negative=()),
    ] = False,
    plan: Annotated[
        bool, Parameter(help="print settings, and compute, memory and time of the base session, and stop", negative=())
    ] = False,
    given: Mapping[str, Any],
) -> None:
    """Run methods on a data set, session by session; the same command continues a run that was stopped.

    `fscil run METHOD DATASET --help` also lists the settings of the method.
    """
    from fscil.running.experiment import RunSpec

    data.check_name(dataset)
    experiments = [
        RunSpec(
            method=name,
            dataset=dataset,
            recipe=recipe or settings.default_recipe(name, dataset),
            config=choices.config(name, dataset, recipe, given),
            root=root,
            protocol=choices.protocol(given),
            seed=number,
            out=out,
            devices=devices,
            precision=precision,
            command=_command(),
            keeps_features=keep_features,
        )
        for name in choices.method_names(method)
        for number in range(seed, seed + seeds)
    ]
    if plan:
        _print_plans(experiments[::seeds])
    else:
        _execute(experiments)


def _print_plans(experiments: Sequence["RunSpec"]) -> None:
    from fscil.running.experiment import plan

    if len(experiments) > 1:
        return show.plans({experiment.method: plan(experiment) for experiment in experiments})
    experiment = experiments[0]
    title = f"{experiment.method} on {experiment.dataset}, recipe {experiment.recipe}"
    paper = flatten(choices.config(experiment.method, experiment.dataset, settings.DEFAULTS, {}))
    return show.plan(title, flatten(experiment.config).values(), paper, plan(experiment))


def _execute(experiments: Sequence["RunSpec"]) -> None:
    from fscil import report
    from fscil.running.experiment import check, execute

    if len(experiments) > 1 and show.FIRST_PROCESS:  # `execute` checks each too, but only when its turn comes
        check(experiments)
    folders = []
    for experiment in experiments:
        show.say(f"{experiment.method} on {experiment.dataset}, recipe {experiment.recipe}, seed {experiment.seed}")
        folders.append(execute(experiment, show.Teller(experiment.folder).line))
    if show.FIRST_PROCESS:
        runs = report.load(folders)
        show.console().print(report.terminal_table(runs, show.console().width))
        for line in report.method_lines(runs):
            show.say(line)
        for run in runs:
            show.say(f"{report.run_line(run)} Run folder: {run.source}")


def demo(*, out: Out = Path("runs"), seed: Annotated[Whole, Parameter(help="seed of the run")] = 0) -> None:
    """Learn 60 characters, then 40 more from five pictures each, and write a report (about five minutes)."""
    from fscil import report
    from fscil.running.experiment import RunSpec, execute

    show.say("KT-RCNet learns 60 characters from many pictures, then five new ones at a time from five pictures each.")
    config = choices.config("kt_rcnet", "glyphs", settings.SMALL, {})
    experiment = RunSpec(
        method="kt_rcnet",
        dataset="glyphs",
        recipe=settings.SMALL,
        config=config,
        seed=seed,
        out=out,
        command=_command(),
    )
    folder = execute(experiment, show.Teller(experiment.folder).plain_words)
    show.say(f"Report: {report.write_html([folder], folder / 'report.html')}")


def list_methods() -> None:
    """List the methods and their recipes."""
    folder = Path(methods.__file__).parent
    recipes = {n: sorted({r for d in data.names() for r in settings.recipe_names(n, d)}) for n in methods.names()}
    rows = [(name, show.summary(folder / f"{name}.py"), " ".join(recipes[name])) for name in recipes]
    show.table(("method", "what it is", "recipes"), rows)


def list_datasets() -> None:
    """List the data sets."""
    folder = Path(data.__file__).parent
    show.table(("data set", "what it is"), [(name, show.summary(folder / f"{name}.py")) for name in data.names()])


def check_data(name: Dataset, /, *, root: Root = None, given: Mapping[str, Any]) -> None:
    """Download a data set, or verify the one on disk, and print its sessions."""
    from fscil.data.download import fetch
    from fscil.data.verify import inspect

    data.check_name(name)
    folder = root or data.default_root()
    fetch(name, folder)
    found = inspect(name, folder, choices.protocol(given))
    show.inspection(found)
    if found.unreadable or found.too_few or found.untested:
        raise FscilError(f"{name} in {folder} cannot be used as it is: repair or remove what is named above")


def write_report(
    runs: Runs,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), help="file to write")] = None,
    format: Annotated[Format, Parameter(help="html is one self-contained page, the others are tables")] = "html",  # noqa: A002
) -> None:
    """Write the curves, tables and settings of runs beside the published numbers."""
    from fscil import report

    if format == "html":
        show.say(f"Report: {report.write_html(runs, output or Path('report.html'))}")
    elif output:
        show.say(f"Report: {report.write_table(runs, format, output)}")
    else:
        show.block(report.table(runs, format))


def write_results(
    runs: Folders,
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="folder to write into")] = Path("results"),
) -> None:
    """Write the numbers of runs as JSON files, one per run."""
    from fscil import report

    for file in report.write_results(runs, output):
        show.say(file)


def application(tokens: Sequence[str]) -> App:
    """The commands; the options of `run` depend on the methods that the tokens name."""
    app = App(name="fscil", version=fscil.__version__, help="Few-shot class-incremental learning of images.")
    app.command(demo)
    app.command(with_options(run, [*choices.protocol_options(), *choices.method_options(tokens)]), name="run")
    app.command(list_methods, name="methods")
    app.command(list_datasets, name="datasets")
    app.command(list_encoders, name="encoders")
    app.command(with_options(check_data, choices.protocol_options()), name="data")
    app.command(write_report, name="report")
    app.command(write_results, name="results")
    app.command(run_experiment, name="experiment")
    for verb in (*learn.VERBS, *teach.VERBS, *ask.VERBS, *correct.VERBS, *serve.VERBS):
        app.command(verb)
    return app


def main() -> None:
    """The console script: 0 after success, 2 after an error that the user can solve, 130 after Ctrl-C."""
    tokens = sys.argv[1:]
    if isinstance(sys.stdout, io.TextIOWrapper):  # file names need not be valid text
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.formatwarning = lambda message, *_: f"fscil: warning: {message}\n"
    warnings.filterwarnings("ignore", module=r"PIL\b")  # it names no photo; what is wrong with one is said without it
    try:
        command, bound, _ = application(tokens).parse_args(tokens, exit_on_error=False, print_error=False)
        command(*bound.args, **bound.kwargs)
    except UnusedCliTokensError as error:
        _stop(f"{' '.join(error.unused_tokens or [])!r} is not understood here: see fscil {tokens[0]} --help", 2)
    except (CycloptsError, FscilError) as error:
        _stop(str(error), 2)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python complains when it closes its output
    except OSError as error:
        if error.filename is None:
            raise
        _stop(f"{error.filename}: {error.strerror}", 2)
    except KeyboardInterrupt:
        _stop(f"stopped: run the same command again to {'continue' if _continues(tokens) else 'start over'}", 130)


def _continues(tokens: Sequence[str]) -> bool:
    """Whether a command that was stopped keeps what it has done so far."""
    verb = tokens[0] if tokens else ""
    training = verb == "learn" and ("--train" in tokens or "full" in tokens)
    return training or verb in ("run", "demo", "experiment", "data")


def _command() -> str:
    return shlex.join(["fscil", *sys.argv[1:]])


def _stop(sentence: str, code: int) -> NoReturn:
    if show.FIRST_PROCESS or code != 130:
        show.complain(sentence)
    sys.exit(code)
