"""The arrows between folders point one way."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "src" / "fscil"

UPPER_FLOOR = tuple(
    f"running.{name}" for name in ("experiment", "outcome", "protocol", "planning", "sharing", "trying")
)
TRAINING = ("running.training", "running.features", "running.stages", "running.descent")
FOLDERS_OF_RUNS = ("running.runfolder", "running.inherited")
DOORS = ("command", "experiments", "report", "teach", "serve", "classifier")  # of users; nothing below knows them
CHANGES = ("serve.changing", "serve.classes")
QUESTIONS = ("serve.asking", "serve.looking", "serve.testing")
HALL = ("serve.server", "serve.app", "serve.guard")  # through which a request comes in
ROUTES = (*CHANGES, *QUESTIONS, "serve.watching", "serve.pages")
BELOW_ROUTES = (
    "service",
    "shapes",
    "words",
    "problems",
    "forms",
    "uploads",
    "meant",
    "store",
    "eyes",
    "tasks",
    "meters",
)
TEACHING = tuple(f"teach.{room}" for room in ("seeing", "knowledge", "storage", "lessons", "base", "outputs"))

# Folder or module -> what it must not import.
FORBIDDEN = {
    "settings": ("running", "data", "nn", "methods", "tensors", "metrics", *DOORS),
    "errors.py": ("running", "data", "nn", "methods", "settings", "tensors", "files", "metrics", *DOORS),
    "files.py": ("running", "data", "nn", "methods", "settings", "tensors", "metrics", *DOORS),
    "text.py": ("running", "data", "nn", "methods", "settings", "tensors", "files", "metrics", *DOORS),
    "tensors.py": ("running", "data", "nn", "methods", "settings", "metrics", *DOORS),
    "metrics.py": ("running", "data", "nn", "methods", "settings", "tensors", *DOORS),
    "data": ("methods", "nn", *UPPER_FLOOR, *TRAINING, *FOLDERS_OF_RUNS, "running.costs", *DOORS),
    "nn": ("methods", "running", *DOORS),
    "methods": (*UPPER_FLOOR, *FOLDERS_OF_RUNS, *DOORS),
    "running": DOORS,
    "running/training.py": ("methods", *UPPER_FLOOR),
    "running/stages.py": ("methods", *UPPER_FLOOR),
    "running/features.py": ("methods", "running.training", "running.stages", *UPPER_FLOOR),
    "running/descent.py": ("methods", "data", "running.training", "running.stages", *UPPER_FLOOR),
    "running/costs.py": ("methods", "data", *TRAINING, *UPPER_FLOOR),
    "running/devices.py": ("methods", "data", "nn", *TRAINING, *UPPER_FLOOR),
    "running/progress.py": ("methods", "data", "nn", *TRAINING, *UPPER_FLOOR),
    "running/runfolder.py": ("methods", "data", "nn", *TRAINING, *UPPER_FLOOR),
    "running/inherited.py": ("methods", "data", "nn", *TRAINING, *UPPER_FLOOR),
    "running/sharing.py": ("running.planning", "running.protocol", "running.experiment", "running.outcome"),
    "running/trying.py": ("methods", "data", "nn", *UPPER_FLOOR),
    "running/planning.py": ("running.training", "running.protocol", "running.experiment"),
    "running/protocol.py": ("running.experiment", "running.outcome"),
    "running/experiment.py": ("running.outcome",),
    "report": ("methods", "nn", "data", "running", "tensors", "command", "teach", "serve", "classifier", "experiments"),
    "teach": ("report", "command", "serve", "classifier", "experiments"),
    "serve": ("report", "command", "classifier", "experiments", "methods", "running", "settings"),
    **{f"serve/{below}.py": (*ROUTES, *HALL) for below in BELOW_ROUTES},
    **{f"{route.replace('.', '/')}.py": HALL for route in ("serve.watching", "serve.pages")},
    **{f"{route.replace('.', '/')}.py": (*CHANGES, *HALL) for route in QUESTIONS},
    **{f"{route.replace('.', '/')}.py": (*QUESTIONS, *HALL) for route in CHANGES},
    "serve/guard.py": ROUTES,
    "experiments": ("command", "teach", "serve", "classifier"),
    "experiments/specs.py": ("running", "report"),
    "teach/names.py": ("teach.replies", *TEACHING),
    "teach/replies.py": TEACHING,
    "teach/seeing": ("methods", "running", *TEACHING[1:]),
    "teach/knowledge": (*TEACHING[2:], *UPPER_FLOOR),
    "teach/knowledge/recogniser.py": ("methods", "running", "teach.seeing.photos", "teach.knowledge.model"),
    "teach/knowledge/model.py": ("methods", "running", "teach.seeing.photos", "teach.knowledge.backbones"),
    "teach/storage": ("methods", "running", *TEACHING[3:]),
    "teach/lessons": ("methods", *UPPER_FLOOR, "running.training", "teach.storage", *TEACHING[4:]),
    "teach/base": ("teach.storage", "teach.outputs"),
    "teach/base/learning.py": ("methods", "running.training", *UPPER_FLOOR, "teach.base.full"),
    "teach/outputs": ("methods", "running", "teach.storage", "teach.base"),
    "classifier.py": ("methods", "running", "report", "command", "serve", "teach.base.full"),
}


def imports(file: Path) -> set[str]:
    """Names below fscil that a file imports, and the folders they are in: nn.heads.CosineHead, nn.heads, nn."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    parts = [name.split(".")[1:] for name in names if name.startswith("fscil.")]
    return {".".join(part[:length]) for part in parts for length in range(1, len(part) + 1)}


def files(place: str) -> list[Path]:
    path = PACKAGE / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@pytest.mark.parametrize("place", FORBIDDEN)
def test_arrows_point_one_way(place: str) -> None:
    against = {str(file.relative_to(PACKAGE)): imports(file) & set(FORBIDDEN[place]) for file in files(place)}
    assert not {file: names for file, names in against.items() if names}


def test_every_room_has_its_arrows() -> None:
    rooms = {room.name for room in PACKAGE.iterdir() if room.suffix == ".py" or (room / "__init__.py").exists()}
    floors = {f"running/{file.name}" for file in files("running") if file.stem != "__init__"}
    top = {"command", "__init__.py", "__main__.py", "running/outcome.py"}  # nothing in their room stands above them
    assert sorted((rooms | floors) - top - set(FORBIDDEN)) == []


def test_of_the_images_nn_knows_the_stores_alone() -> None:
    """A memory of exemplars holds images; sessions and data sets are none of its business."""
    known = {
        node.module
        for file in files("nn")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fscil.data")
    }
    assert known == {"fscil.data.images"}


def test_every_module_is_in_the_table() -> None:
    page = (PACKAGE.parent.parent / "docs" / "architecture.md").read_text("utf-8")
    folders = [
        folder.name
        for room in (".", "teach")
        for folder in (PACKAGE / room).iterdir()
        if (folder / "__init__.py").exists()
    ]
    modules = [
        file.name
        for room in (".", "running", "command", "experiments", "teach/**", "serve")
        for file in PACKAGE.glob(f"{room}/[!_]*.py")
    ]
    assert [name for name in (*modules, *(f"{folder}/" for folder in folders)) if f"`{name}`" not in page] == []


def test_nothing_imports_a_particular_method() -> None:
    names = {file.stem for file in files("methods") if not file.stem.startswith("_")}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "fscil.methods":
                assert not names & {alias.name for alias in node.names}, file
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fscil.methods."):
                method = node.module.split(".")[2]
                assert method not in names or file.stem.startswith(f"_{method}"), (
                    file
                )  # its own helpers may know its type


def test_the_top_level_stays_small() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 8


def test_no_file_outgrows_its_idea() -> None:
    lengths = {str(file.relative_to(PACKAGE)): len(file.read_text("utf-8").splitlines()) for file in files(".")}
    assert {file: lines for file, lines in lengths.items() if lines > 300} == {}


def test_the_check_sees_imports(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("from fscil.nn.heads import CosineHead\nimport fscil.report\nfrom fscil import methods\n")
    assert imports(file) == {"nn", "nn.heads", "nn.heads.CosineHead", "report", "methods"}
    file.write_text("from fscil.teach.seeing import photos\n")
    assert imports(file) == {"teach", "teach.seeing", "teach.seeing.photos"}
