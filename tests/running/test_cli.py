"""The command line: every verb, its errors as one sentence with exit code 2, and no torch before it is needed."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import fscil.running.experiment
from commands import Fscil
from fscil import methods, settings
from fscil.command import cli, show
from fscil.data import Protocol, glyphs
from fscil.data.images import Ingredients
from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.nn.encoders import Encoder
from fscil.running.experiment import RunSpec
from fscil.settings.fields import flatten
from quick import LEARNS, OWN
from tiny import tiny_encoder

TINY = (
    *("--encoder", "resnet20", "--pixels", "16", "--base.epochs", "1", "--base.batch", "60", "--held_out", "0"),
    *("--augment.crop", "none", "--augment.margin", "1", "--precision", "float32"),
)


@pytest.fixture
def fscil_command(fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch, tiny: Benchmark) -> Fscil:
    """The command where every data set is the tiny benchmark."""
    monkeypatch.setattr(fscil.running.experiment, "benchmark", lambda name, root, protocol: tiny)
    return fscil_command


@pytest.fixture
def experiments(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """Collects the experiments that would be executed."""
    seen: list[RunSpec] = []

    def remember(experiment: RunSpec, tell: object) -> Path:
        seen.append(experiment)
        raise FscilError("not executed")

    monkeypatch.setattr(fscil.running.experiment, "execute", remember)
    return seen


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, **options)


# ---- help ------------------------------------------------------------------------------------------------------------


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, fscil; sys.argv = ['fscil', '--help']; from fscil.command.cli import main; main();"
        "print([m for m in ('torch', 'timm', 'matplotlib', 'sklearn', 'lightning_fabric') if m in sys.modules])"
    )
    done = python("-c", code)
    assert done.stdout.splitlines()[-1] == "[]"
    for verb in ("demo", "run", "methods", "datasets", "data", "report", "results"):
        assert re.search(rf"│ {verb} ", done.stdout), verb


def test_python_m_fscil_prints_the_version() -> None:
    done = python("-m", "fscil", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, fscil.__version__)


def test_public_names_are_lazy_and_there() -> None:
    assert python("-c", "import sys, fscil; print('torch' in sys.modules)").stdout == "False\n"
    assert set(dir(fscil)) >= {"benchmark", "methods", "report", "run"}
    assert all(getattr(fscil, name) for name in dir(fscil))
    with pytest.raises(AttributeError, match="bechmark"):
        fscil.bechmark  # noqa: B018


@pytest.mark.parametrize("recipe", ["small", "paper"])
def test_help_of_a_method_lists_its_settings_with_comments_and_values_of_the_recipe(
    fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    shown = fscil_command("run", "kt_rcnet", "glyphs", "--recipe", recipe, "--help").out
    config = settings.resolve(methods.load("kt_rcnet").Config, "kt_rcnet", "glyphs", recipe)
    for leaf in flatten(config).values():
        lines = [line for line in shown.splitlines() if f"--{leaf.name} " in line]
        assert len(lines) == 1, leaf.name
        assert leaf.help
        assert leaf.help in lines[0]
        assert f"[default: {show.value_text(leaf.value)}]" in lines[0]
    assert "--shots-seed INT" in shown
    assert "Settings of kt_rcnet, transfer: " in shown


@pytest.mark.parametrize("names", [*methods.names(), "all"])
def test_no_setting_collides_with_an_option_of_the_command(names: str) -> None:
    options = [
        option
        for argument in cli.application(["run", names, "glyphs"])["run"].assemble_argument_collection()
        for option in argument.names
    ]
    assert len(options) == len(set(options))
    assert "--base.epochs" in options


def test_help_of_several_methods_lists_what_they_share(fscil_command: Fscil) -> None:
    text = fscil_command("run", "kt_rcnet,cosine", "glyphs", "--help").out
    assert "--base.epochs" in text
    assert "--way" not in text.replace("--ways", "")


# ---- settings on the command line ------------------------------------------------------------------------------------


def test_everything_arrives_in_the_experiment(fscil_command: Fscil, experiments: list[RunSpec]) -> None:
    line = (
        "run kt_rcnet cifar100 --root /d --recipe paper --seed 4 --devices 2 --precision bfloat16 --out o --shots 3 "
        "--order-seed 7 --base.epochs 2 --base.milestones 1 2 --augment.no-flip --weights none --batch-norm frozen"
    )
    fscil_command(*line.split())
    (e,) = experiments
    assert (e.method, e.dataset, e.recipe, e.seed, e.devices) == ("kt_rcnet", "cifar100", "paper", 4, 2)
    assert (e.root, e.out, e.precision, e.command) == (Path("/d"), Path("o"), "bfloat16", f"fscil {line}")
    assert (e.protocol.shots, e.protocol.order_seed, e.protocol.shots_seed) == (3, 7, 1)
    overrides = {"base.epochs": 2, "base.milestones": (1, 2), "augment.flip": False, "batch_norm": "frozen"}
    assert e.config == settings.resolve(type(e.config), "kt_rcnet", "cifar100", "paper", overrides)


def test_small_is_the_recipe_of_the_command_line(fscil_command: Fscil, experiments: list[RunSpec]) -> None:
    fscil_command("run", "kt_rcnet", "glyphs")
    assert experiments[0].recipe == "small"
    assert experiments[0].config.encoder == "fast"


def test_options_may_stand_before_the_method(fscil_command: Fscil, experiments: list[RunSpec]) -> None:
    fscil_command("run", "--tasks", "5", "--recipe=paper", "kt_rcnet", "glyphs")
    assert (experiments[0].config.tasks, experiments[0].recipe) == (5, "paper")


@pytest.mark.parametrize(
    ("line", "out"),
    [("kt_rcnet --out cub200 cifar100 --recipe compare", "cub200"), ("icarl,cosine cifar100 --out memory", "memory")],
)
def test_a_folder_may_be_called_as_a_data_set_or_a_setting(
    fscil_command: Fscil, experiments: list[RunSpec], line: str, out: str
) -> None:
    fscil_command("run", *line.split())
    assert (experiments[0].dataset, experiments[0].out) == ("cifar100", Path(out))


def test_recipe_from_a_file(fscil_command: Fscil, experiments: list[RunSpec]) -> None:
    Path("mine.toml").write_text("tasks = 6\n")
    fscil_command("run", "kt_rcnet", "glyphs", "--recipe", "mine.toml")
    assert experiments[0].config.tasks == 6


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("rnu", 'Unknown command "rnu". Did you mean "run"?'),
        ("run", "METHOD requires an argument"),
        ("run kt_rcnet", "DATASET requires an argument"),
        ("run kt_rcnet --root /photos", "DATASET requires an argument"),
        ("run --recipe small", "METHOD requires an argument"),
        ("run kt_rcnet /photos", "unknown data set '/photos'"),
        ("run kt_rcnet **x", "unknown data set '**x'"),
        ("run --seed 3 kt_rcnt glyphs", "unknown method 'kt_rcnt': did you mean 'kt_rcnet'?"),
        ("run kt_rcnt glyphs --base.epochs 3", "unknown method 'kt_rcnt': did you mean 'kt_rcnet'?"),
        ("run kt_rcnet glyphs --seed 100000000000000000000", "--seed is 100000000000000000000, but must lie between"),
        ("demo --seed -1", "--seed is -1, but must lie between"),
        ("run kt_rcnt glyphs", "unknown method 'kt_rcnt': did you mean 'kt_rcnet'?"),
        ("run kt_rcnet,cosin glyphs", "unknown method 'cosin': did you mean 'cosine'?"),
        ("run kt_rcnet glyfs", "unknown data set 'glyfs': did you mean 'glyphs'?"),
        ("data glyfs", "unknown data set 'glyfs': did you mean 'glyphs'?"),
        ("run kt_rcnet glyphs --recipe smal", "unknown recipe 'smal' for kt_rcnet on glyphs: did you mean 'small'?"),
        ("run kt_rcnet glyphs --recipe no.toml", "cannot read the recipe no.toml: No such file or directory"),
        ("run kt_rcnet glyphs --recipe bad.toml", "bad.toml: unknown setting 'taks' in a recipe of kt_rcnet"),
        ("run kt_rcnet glyphs --recipe bad.toml", "did you mean 'tasks'?"),
        ("run kt_rcnet glyphs --base.epoch 3", "Unknown option: --base.epoch. Did you mean --base.epochs?"),
        ("run kt_rcnet glyphs --base.epochs 3.5", "--base.epochs: '3.5' is not a whole number"),
        ("run kt_rcnet glyphs --base.milestones 1 2.5", "--base.milestones"),
        ("run kt_rcnet glyphs --seed 3.5", "--seed: '3.5' is not a whole number"),
        ("run kt_rcnet glyphs --seeds 0", "--seeds. It must be 1 or more."),
        ("run kt_rcnet glyphs --precision float16", "--precision"),
        ("run kt_rcnet glyphs --synthesis rotat", 'Did you mean "rotate"?'),
        ("run kt_rcnet glyphs --scale big", "--scale"),
        ("run kt_rcnet glyphs --augment.flip false", "'false' is not understood here: see fscil run --help"),
        ("run kt_rcnet,cosine glyphs --tasks 3", "--tasks is no setting of cosine"),
        ("report nowhere", "nowhere"),
        ("report", "RUNS requires an argument"),
        ("report nowhere --format docx", 'Choose from: "html", "md", "csv", "latex"'),
    ],
)
def test_usage_errors_are_one_sentence(fscil_command: Fscil, line: str, sentence: str) -> None:
    Path("bad.toml").write_text("taks = 6\n")
    done = fscil_command(*line.split())
    assert done.code == 2
    assert sentence in done.err, done.err
    assert done.err.startswith("fscil: ")
    assert done.err.count("\n") == 1


def test_a_wrong_setting_is_found_before_anything_is_learned(
    fscil_command: Fscil, experiments: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fscil_command("run", "cosine,kt_rcnt", "glyphs")
    assert (done.code, experiments) == (2, [])


def test_bugs_keep_their_traceback(fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Path:
        raise ZeroDivisionError

    monkeypatch.setattr(fscil.running.experiment, "execute", broken)
    with pytest.raises(ZeroDivisionError):
        fscil_command("run", "cosine", "glyphs")


# ---- verbs -----------------------------------------------------------------------------------------------------------


def test_methods_and_datasets_are_listed_with_a_summary(fscil_command: Fscil) -> None:
    listed = fscil_command("methods").out
    for name in methods.names():
        assert re.search(rf"^ ?{name} +\S+.*\bpaper\b", listed, re.MULTILINE), name
    listed = fscil_command("datasets").out
    for name in ("cifar100", "cub200", "folder", "glyphs", "mini_imagenet"):
        assert re.search(rf"^ ?{name} +\S+", listed, re.MULTILINE), name


def test_run_then_report_then_results_work_together(fscil_command: Fscil) -> None:
    done = fscil_command("run", "cosine", "glyphs", "--seeds", "2", "--seed", "3", *TINY)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"Session 3: learned 2 classes \(pattern 10, pattern 11\); \d+\.\d\d % of the 120", done.out)
    assert "Avg" in done.out
    assert "PMAC" in done.out
    for seed in (3, 4):
        folder = Path(f"runs/glyphs/cosine-small/seed{seed}")
        assert f"Run folder: {folder}" in done.out
        assert (folder / "session-03.json").exists()

    done = fscil_command("report", "runs")
    assert "Report: report.html" in done.out
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "cosine" in fscil_command("report", "runs", "--format", "md").out
    fscil_command("report", "runs", "--format", "csv", "-o", "new/table.csv")
    assert "cosine" in Path("new/table.csv").read_text()
    done = fscil_command("report", "runs", "--format", "csv", "-o", "report.html/table.csv")
    assert re.fullmatch(r"fscil: .*report.html/table.csv could not be written \(.*\); choose another place\n", done.err)

    written = fscil_command("results", "runs", "-o", "numbers").out.split()
    assert len(written) == 2
    assert all(Path(file).read_text().startswith("{") for file in written)
    done = fscil_command("results", *written, "-o", "again")
    assert (done.code, done.out) == (2, "")
    assert "no run folder among the paths given" in done.err


@pytest.fixture(scope="module")
def few_glyphs() -> Benchmark:
    """Twelve characters of the embedded benchmark, forty pictures each: six base classes, then two at a time."""
    pictures = np.stack([glyphs.draw(character, 40) for character in glyphs.CHARACTERS[:12]])
    train, test = glyphs._images(pictures[:, :30]), glyphs._images(pictures[:, 30:])
    names = tuple(glyphs.CHARACTERS[:12])
    parts = Ingredients(train, test, names, glyphs.PIXELS, glyphs.MEAN, glyphs.STD, False, base_classes=6, ways=2)
    return Benchmark("glyphs", parts, Protocol())


@pytest.mark.parametrize("name", methods.names())
def test_every_method_runs_from_the_command_line(
    fscil_command: Fscil, few_glyphs: Benchmark, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fscil.running.experiment, "benchmark", lambda dataset, root, protocol: few_glyphs)
    wanted = {**LEARNS, "base.pixels": 16, **OWN.get(name, {})}
    chosen = [token for setting, value in wanted.items() for token in (f"--{setting}", str(value))]
    done = fscil_command("run", name, "glyphs", "--precision", "float32", *chosen)
    assert (done.code, done.err) == (0, "")
    folder = Path(f"runs/glyphs/{name}-small/seed0")
    assert len(list(folder.glob("session-*.json"))) == 4
    assert re.search(
        rf"^{name} on glyphs \(recipe small, .*seed 0\): ", done.out, re.MULTILINE
    )  # with what was changed
    facts = json.loads((folder / "run.json").read_text())
    assert re.search(rf"^{name}( †)? · small, .*: encoder tiny; pixels 16; ", done.out, re.MULTILINE)
    assert f"keeps {facts['keeps']}; encoder needs {facts['encoder_needs']}; selection last epoch" in done.out
    assert (name in ("mcnet", "meta_fscil", "topic")) == bool(facts["reconstruction"])


def test_what_a_later_method_cannot_do_is_said_before_the_first_trains(
    fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_piece = Encoder(nn.Sequential(tiny_encoder().stages), 16, 16)
    monkeypatch.setitem(encoders.BUILDERS, "one_piece", lambda pixels, weights: one_piece)
    tokens = ["one_piece" if token == "resnet20" else token for token in TINY]
    done = fscil_command("run", "cosine,finetune", "glyphs", *tokens)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("fscil: finetune: the last block is trained alone, but encoder one_piece is one piece")
    assert done.err.count("\n") == 1
    assert not Path("runs").exists()
    assert fscil_command("run", "cosine", "glyphs", *tokens).code == 0


def test_a_plan_of_what_cannot_be_done_is_refused(fscil_command: Fscil) -> None:
    done = fscil_command("run", "icarl", "glyphs", *TINY, "--memory", "5", "--plan")
    assert done.code == 2
    assert done.err == ("fscil: a memory of 5 images has no room for each of 12 classes; set --memory to 12 or more\n")


def test_the_same_command_again_tells_the_same_and_another_configuration_is_refused(fscil_command: Fscil) -> None:
    first = fscil_command("run", "cosine", "glyphs", *TINY)
    again = fscil_command("run", "cosine", "glyphs", *TINY)
    assert first.out == again.out
    other = fscil_command("run", "cosine", "glyphs", *TINY, "--scale", "3")
    assert other.code == 2
    assert "scale: 16.0 there, 3.0 here" in other.err


def test_plan_prints_settings_and_cost_and_trains_nothing(fscil_command: Fscil) -> None:
    done = fscil_command("run", "cosine", "glyphs", *TINY, "--plan")
    assert done.code == 0, done.err
    assert re.search(r"base.epochs +1 +150 +", done.out)
    for word in ("parameters", "compute of base session", "PMAC", "memory", "GiB", "time of base session", "float32"):
        assert word in done.out
    assert not Path("runs").exists()


def test_a_plan_compares_with_what_the_paper_does_on_the_data_set(fscil_command: Fscil) -> None:
    done = fscil_command("run", "cosine", "cub200", *TINY, "--base.pixels", "16", "--weights", "none", "--plan")
    assert done.code == 0, done.err
    assert re.search(r"base.epochs +1 +50 +", done.out)
    assert re.search(r"weights +none +pretrained +", done.out)


def test_plans_of_several_methods_are_one_table(fscil_command: Fscil) -> None:
    done = fscil_command("run", "cosine,joint", "glyphs", *TINY, "--plan")
    assert done.code == 0, done.err
    for name in ("cosine", "joint"):
        assert re.search(rf"(?m)^{name} +[\d,]+ +0\.\d+ +0\.\d+ +\d+\.\d ", done.out)
    assert "base.epochs" not in done.out


def test_paths_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show.say("photos/:dog:/[b]1.jpg")
    show.table(("file",), [(":dog:/[b]2.jpg",)])
    said = capsys.readouterr().out
    assert "photos/:dog:/[b]1.jpg" in said
    assert ":dog:/[b]2.jpg" in said


def test_demo_tells_in_plain_words(fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fscil.running.experiment.execute

    def tiny_execute(experiment: RunSpec, tell: Any) -> Path:
        base = replace(experiment.config.base, epochs=1, batch=60)
        config = replace(experiment.config, encoder="resnet20", pixels=16, base=base, complement="tied", held_out=5)
        return real(replace(experiment, config=config, precision="float32"), tell)

    monkeypatch.setattr(fscil.running.experiment, "execute", tiny_execute)
    done = fscil_command("demo")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    accuracy = r"\d+\.\d %"
    assert re.fullmatch(
        rf"Session 0: learned (pattern ){{6}}from 25 pictures each. It knows 6 classes and gets {accuracy} right.",
        lines[1],
    )
    assert re.fullmatch(
        rf"Session 3: learned pattern pattern from 5 pictures each. It now knows 12 classes and gets {accuracy} right "
        rf"\(first 6: {accuracy}, new ones: {accuracy}\).",
        lines[4],
    )
    report = lines[-1].removeprefix("Report: ")
    assert Path(report).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_data_prints_sessions_and_names_what_is_wrong(fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch) -> None:
    from fscil.data.verify import Inspection, SessionSummary

    rows = (SessionSummary(0, ("ant", "bee"), 12, 4), SessionSummary(1, ("cat",), 3, 6))
    good = Inspection("folder", rows, (), (("a/1.jpg", "a/2.jpg"),), (), (), True, ())
    monkeypatch.setattr("fscil.data.verify.inspect", lambda name, root, protocol: good)
    done = fscil_command("data", "folder", "--root", "x", "--shots", "3")
    assert done.code == 0, done.err
    assert re.search(r"0 +2 +12 +4 +ant, bee", done.out)
    assert "same content: a/1.jpg, a/2.jpg" in done.out
    assert "are the published ones" in done.out
    bad = replace(good, unreadable=("b/3.jpg is no image",), too_few=("cat",), published=False, differing=(1,))
    monkeypatch.setattr("fscil.data.verify.inspect", lambda name, root, protocol: bad)
    done = fscil_command("data", "folder", "--root", "x")
    assert done.code == 2
    assert "b/3.jpg is no image" in done.out
    assert "fewer training images than shots: cat" in done.out
    assert "differ in sessions 1" in done.out
    assert done.err == "fscil: folder in x cannot be used as it is: repair or remove what is named above\n"


# ---- several processes, and stopping ---------------------------------------------------------------------------------


def test_only_the_first_process_prints(fscil_command: Fscil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "FIRST_PROCESS", False)
    assert fscil_command("methods").out == ""


def test_control_c_says_how_to_go_on(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in background
        "sys.argv = ['fscil', 'methods']; from fscil.command import cli, show\n"
        "def wait(*_): print('ready', flush=True); time.sleep(60)\n"
        "show.table = wait; cli.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "fscil: stopped: run the same command again to start over\n"


def test_control_c_while_the_command_is_imported(tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        "class Impatient:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'cyclopts': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Impatient()); runpy.run_module('fscil', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=os.environ)
    assert (done.returncode, done.stderr) == (130, "fscil: stopped\n")


@pytest.mark.parametrize(
    ("command", "continues"),
    [
        ("run cosine glyphs", True),
        ("experiment main.toml", True),
        ("learn photos --save a.fscil --train", True),
        ("learn photos --save a.fscil --strength full", True),
        ("learn photos --save a.fscil", False),  # nothing of it is kept
        ("teach a.fscil full 1.jpg", False),
        ("", False),
    ],
)
def test_only_what_continues_is_said_to(command: str, continues: bool) -> None:
    assert cli._continues(command.split()) == continues
