"""docs/teach.md, executed word for word, in order."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

from fscil.command import cli
from fscil.data.images import cut_picture
from fscil.teach.lessons.looking import glance
from fscil.teach.seeing.photos import read
from fscil.teach.storage import modelfile
from packages import installed
from printed import is_printed

PAGE = Path(__file__).parent.parent.parent / "docs" / "teach.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
EXTRAS = {"export": ("onnxruntime", "onnx", "onnxscript"), "explain": ("pytorch_grad_cam",)}

SAID = {  # what the page promises about the answers
    "fscil learn photos/ --save things.fscil": (
        r"prototypes: 3 classes with 24 photos; about .*\nthings.fscil: learned 3 classes from 24 photos"
    ),
    "fscil predict things.fscil moon/5.jpg moon/6.jpg": r"moon/5.jpg: moon [01]\.\d\d\nmoon/6.jpg: moon [01]\.\d\d",
    "fscil predict things.fscil photos/ball/0.jpg --json": r'"class": "ball", "known": true',
    "fscil undo things.fscil": r"undone: (forgot 'leaf'|corrected 1 photo from 'moon' to 'ball'); things.fscil knows 4",
    "fscil classes things.fscil": r"full moon +5 +taught(.|\n)*renamed 'moon' to 'full moon'",
    'fscil forget things.fscil "full moon" --erase': r"erased 'full moon'; things.fscil knows 3 classes",
    "fscil evaluate things.fscil photos/ --html mistakes.html": (
        r"24 photos of 3 classes: 100.0 % right(.|\n)*AUROC(.|\n)*page: mistakes.html"
    ),
    "fscil card things.fscil": r"efficientnet_lite0, 224 px, weights: ImageNet \(licence: Apache-2.0\)",
    "fscil export things.fscil --onnx out/": r"wrote model.onnx, encoder.bin and classes.json; 3 classes",
    "fscil explain things.fscil photos/ball/0.jpg -o why.png": r"why.png: where the relations to 'ball' look",
}


def missing(line: str) -> list[str]:
    """Packages of an extra that the command needs and that are not there."""
    return [name for name in EXTRAS.get(line.split()[1], ()) if importlib.util.find_spec(name) is None]


def exported_graph_answers(photo: str) -> None:
    """The graph of the real encoder says in ONNX Runtime what the model says in PyTorch."""
    import onnxruntime

    model = modelfile.load("things.fscil")
    crop = cut_picture(read(photo, model.framing.pixels), model.framing, None).copy()
    image = torch.from_numpy(crop).permute(2, 0, 1)[None].float() / 255
    scores = onnxruntime.InferenceSession("out/model.onnx").run(["scores"], {"image": image.numpy()})[0]
    expected = model.scores(glance(model, [photo]).features)
    torch.testing.assert_close(torch.from_numpy(scores), expected, rtol=0, atol=1e-4)


def about_as_long_as_announced(said: str) -> None:
    """A real encoder and a real clock: within a factor of two, up to rounding, though the photos are few."""
    announced, taken = (float(re.findall(pattern, said)[0]) for pattern in (r"about (\d+) s", r"in ([\d.]+) s"))
    assert taken / 2 - 0.5 <= announced <= 2 * taken + 1, said


def test_an_output_that_is_not_printed_would_be_noticed() -> None:
    assert is_printed("ball 0.98\nmoon …", "ball 0.97\nmoon 0.9")
    assert not is_printed("ball 0.98", "moon 0.98")
    assert not is_printed("ball 0.98", "ball 0.98\nmoon 0.98")


def test_the_page_works_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed("efficientnet_lite0")
    monkeypatch.chdir(tmp_path)
    run, skipped, printed = [], [], ""
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), {"__name__": "page"})
        if language == "text":
            assert is_printed(text, printed), printed
        if language:
            continue
        printed = ""
        for line in text.strip().splitlines():
            if line.startswith("pip "):
                continue
            if missing(line):
                skipped.append(line)
                continue
            monkeypatch.setattr(sys, "argv", shlex.split(line))
            capsys.readouterr()
            cli.main()
            said = capsys.readouterr().out
            printed += said
            assert re.search(SAID.get(line, "."), said), f"{line}\n{said}"
            if line.startswith("fscil learn"):
                about_as_long_as_announced(said)
            run.append(line)
    assert set(SAID) <= {*run, *skipped}
    assert b"full moon" not in Path("things.fscil").read_bytes()
    assert modelfile.load("things.fscil").classes == ["ball", "box", "leaf"]
    if not missing("fscil export"):
        exported_graph_answers("photos/ball/0.jpg")
    assert Path("why.png").is_file() or any("explain" in line for line in skipped)
