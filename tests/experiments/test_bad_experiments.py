"""What is wrong with an experiment is said in one sentence, before anything is run."""

from pathlib import Path

import pytest

from commands import Fscil
from fscil.errors import FscilError
from fscil.experiments import specs
from fscil.experiments.cells import cells, check_changes, only, part
from small_experiments import spread_out, written

HEAD = 'dataset = "cifar100"\nmethod = "kt_rcnet"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEAD + "[axes]\nwya = [1]", "unknown axis 'wya' of kt_rcnet: did you mean 'way'?"),
        (HEAD + "[repeats]\nshot_seed = [1]", "unknown repetition 'shot_seed' of kt_rcnet: did you mean 'shots_seed'?"),
        (HEAD + "[settings]\nbase.epoch = 1", "unknown setting 'base.epoch' of kt_rcnet: did you mean 'base.epochs'?"),
        (HEAD + "[arms.x]\nsynth = 1", "unknown setting 'synth' of kt_rcnet in arm 'x'"),
        (HEAD + "[axes]\nway = []", "axis 'way' has no values, so the experiment has no cells"),
        (HEAD + "[axes]\nway = 5", "axis 'way' is 5, but must be a list of values"),
        (HEAD + "[axes]\nway = [5, 5]", "axis 'way' names a value twice"),
        (HEAD + "[choices.x]", "choice 'x' has no groups"),
        (HEAD + "[choices.x.y]\nwya = 1", "unknown setting 'wya' of kt_rcnet in group 'y'"),
        (HEAD + "axis = 1", "unknown entry 'axis' in the file: did you mean 'axes'?"),
        (HEAD + "seeds = 0", "seeds is 0, but must be at least 1"),
        (HEAD + 'seeds = "two"', 'seeds = "two" is not a whole number'),
        (HEAD + 'axes = "way"', 'axes = "way" is no table'),
        (HEAD + "exceptions = 1", "exceptions is no list of tables"),
        (HEAD + "[[exceptions]]\nwhen = { wya = 1 }\nsettings = { way = 2 }", "unknown setting 'wya'"),
        (HEAD + "[[omit]]\nwhen = { wya = 1 }", "unknown setting 'wya' of kt_rcnet in 'when': did you mean 'way'?"),
        (HEAD + "[[omit]]", "[[omit]] without 'when' would leave every cell out"),
        (HEAD + "omit = [1]", "omit are tables: write [[omit]] with 'when'"),
        (HEAD + '[arms.x]\nof = "z"\n[arms.y]\nway = 3', "arm 'x' reads the runs of 'z': known: y"),
        (
            HEAD + '[arms.x]\nof = "y"\nway = 3\n[arms.y]',
            "reads the runs of 'y': it has no method and settings",
        ),
        (HEAD + 'reference = "a"', "reference is no arm: known: kt_rcnet"),
        (HEAD + 'methods = ["cosine"]', "omit 'method', or omit 'methods'"),
        ('dataset = "cifar100"\nmethods = []', "the experiment has no cells: name a method, methods or arms"),
        ('dataset = "cifar100"\n[arms.x]', "arm 'x' has no method"),
        ('dataset = "cifar10"\nmethod = "cosine"', "unknown data set 'cifar10': did you mean 'cifar100'?"),
        ('dataset = "cifar100"\nmethod = "cosin"', "unknown method 'cosin': did you mean 'cosine'?"),
        ('dataset = "cifar100"\nmethods = "cosine"', 'methods = "cosine" is not a list'),
        ("[axes", "is not a valid TOML file"),
    ],
)
def test_a_file_is_refused_with_its_name_and_the_reason(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(FscilError) as refusal:
        written(tmp_path, text)
    assert complaint in str(refusal.value)
    assert "mine.toml" in str(refusal.value)


def test_a_value_that_a_setting_cannot_have_is_named_with_its_cell(tmp_path: Path) -> None:
    experiment = written(tmp_path, HEAD + "[axes]\nway = [5, 0]")
    with pytest.raises(FscilError, match=r"experiment mine, way0: .*way"):
        spread_out(experiment, tmp_path)


def test_arms_whose_names_make_one_folder_are_refused(tmp_path: Path) -> None:
    experiment = written(tmp_path, HEAD + '[arms."a b"]\nway = 5\n[arms."a/b"]\nway = 6')
    with pytest.raises(FscilError, match=r"two cells would share the folder .*rename an arm"):
        spread_out(experiment, tmp_path)


def test_some_draws_can_be_run_alone(tmp_path: Path) -> None:
    """As the sentence says that refuses --set of what is repeated."""
    left = only(spread_out(specs.load("draws"), tmp_path), ["shots_seed=3,5"])
    assert {reading.repetition["shots_seed"] for reading in left} == {3, 5}


def test_cells_that_are_left_out_are_not_run_without_their_names(tmp_path: Path) -> None:
    text = HEAD + "[axes]\nway = [2, 3]\nshot = [1, 5]\n[[omit]]\nwhen = { way = 2, shot = [1, 2] }\n"
    readings = spread_out(written(tmp_path, text), tmp_path)
    assert [(r.point["way"], r.point["shot"]) for r in only(readings, ())] == [(2, 5), (3, 1), (3, 5)]
    assert [(r.point["way"], r.point["shot"]) for r in only(readings, ["shot=1"])] == [(2, 1), (3, 1)]
    whole = written(tmp_path, HEAD + '[axes]\nway = [2, 3]\n[[omit]]\nwhen = { dataset = "cifar100" }\n')
    with pytest.raises(FscilError, match=r"leaves these cells out \(dataset\); name others"):
        only(spread_out(whole, tmp_path), ["way=2"])


def test_a_name_that_holds_a_comma_can_be_asked_for(tmp_path: Path) -> None:
    arms = '[arms.cosine]\n[arms."cosine, two nets"]\nway = 3\n[arms.other]\nway = 4\n'
    readings = spread_out(written(tmp_path, HEAD + arms), tmp_path)
    for wish, names in {
        "arm=cosine, two nets": ["cosine, two nets"],
        "arm=other,cosine, two nets": ["cosine, two nets", "other"],
        "arm=cosine,other": ["cosine", "other"],
    }.items():
        assert [reading.arm.name for reading in only(readings, [wish])] == names
    with pytest.raises(FscilError, match="arm is never ' two' here"):
        only(readings, ["arm=cosine, two"])


@pytest.mark.parametrize("text", ["0/2", "3/2", "1/0", "2", "a/b", "-1/2", "1/2/3"])
def test_a_part_out_of_range_is_refused(text: str, tmp_path: Path) -> None:
    runs = cells(spread_out(written(tmp_path, HEAD), tmp_path))
    with pytest.raises(FscilError, match=f"--part {text} is not possible: write K/N"):
        part(runs, text)


def test_parts_are_every_nth_cell_and_together_all(tmp_path: Path) -> None:
    runs = cells(spread_out(written(tmp_path, HEAD + "[axes]\nway = [2, 3, 4, 5, 6]"), tmp_path))
    assert [run.config.way for run in part(runs, "2/3")] == [3, 6]
    assert sorted(run.config.way for k in (1, 2, 3) for run in part(runs, f"{k}/3")) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        (["ablatoin"], "unknown experiment 'ablatoin': did you mean 'ablation'?"),
        (["main", "cifar10"], "unknown data set 'cifar10': did you mean 'cifar100'?"),
        (["main", "--recipe", "smal"], "unknown recipe 'smal' for cosine on cifar100"),
        (["nowhere.toml"], "cannot read the experiment nowhere.toml"),
        (["main", "--part", "3/2"], "--part 3/2 is not possible"),
        (["main", "--jobs", "0"], "It must be 1 or more"),
        (["main", "--set", "pixel=3"], "unknown setting 'pixel' in --set: did you mean 'pixels'?"),
        (["lambdas", "--set", "local_weight=2"], "differ in local_weight; take --only local_weight=…"),
        (["draws", "--set", "shots_seed=3"], "the cells of draws differ in shots_seed; take --only shots_seed=…"),
        (["strategies", "cub200", "--set", "complement=tied"], "arm 'tied' of strategies is made by"),
        (["strategies", "--only", "arm=RESS,RESA-R", "--set", "local_weight=1"], "arm 'RESS' of strategies is made by"),
        (["ablation", "--only", "arm=C", "--set", "complement=resa"], "arm 'B+C' of ablation is made by its own"),
        (["main", "--set", "nets=1"], "choose arms that do not set it by --only arm=…"),
        (["main", "--set", "pixels"], "--set pixels is no NAME=VALUE"),
        (["main", "--set", "pixels=many"], 'pixels = "many" is not a whole number'),
        (["main", "--only", "arms=joint"], "there is no 'arms' in this experiment; did you mean 'arm'?"),
        (["main", "--only", "arm=joined"], "arm is never 'joined' here; did you mean 'joint'?"),
        (["lambdas", "--only", "local_weight=3"], "local_weight is never '3' here"),
    ],
)
def test_a_command_is_refused_in_one_sentence(tokens: list[str], complaint: str, fscil_command: Fscil) -> None:
    outcome = fscil_command("experiment", *tokens)
    assert outcome.code == 2
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("name", "wishes", "changes"),
    [
        ("trial", ["arm=RESA-R,tied"], {"start": "weights", "start_weights": "net.safetensors"}),
        ("trial", [], {"views": "one", "transfer.epochs": 2, "shrinkage": 1.0, "new_bonus": 0.0, "pixels": 160}),
        ("trial", [], {"trains": "encoder", "held_out": 1, "complement_weight": 1.0}),
        ("trial", ["length=short"], {"transfer.lr": 1e-4}),  # of rate-0, which a map omits
        ("strategies", ["arm=RESA-R"], {"global_weight": 1.0}),
    ],
)
def test_what_no_chosen_arm_sets_may_be_set(
    name: str, wishes: list[str], changes: dict[str, object], tmp_path: Path
) -> None:
    experiment = specs.load(name)
    chosen = only(spread_out(experiment, tmp_path, changes=changes), wishes)
    check_changes(experiment, chosen, changes)
    assert {(key, getattr(r.run.config, key)) for r in chosen for key in changes if "." not in key} == {
        (key, value) for key, value in changes.items() if "." not in key
    }


def test_a_file_with_the_name_of_a_shipped_experiment_is_refused(fscil_command: Fscil) -> None:
    Path("main.toml").write_text(HEAD)
    assert "has the name of a shipped experiment" in fscil_command("experiment", "main.toml").err
