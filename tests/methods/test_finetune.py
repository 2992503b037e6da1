"""Ft-CNN: what is trained, what is not, and that it can be told apart by the part it trains."""

import pytest
import torch
from torch import nn

from fscil.data.sessions import Benchmark
from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.nn.encoders import Encoder
from fscil.running.training import Run
from tiny import learn_two
from untrained import untrained


def changed(before: dict, after: dict) -> set[str]:
    return {key for key in before if not torch.equal(before[key], after[key])} - {"net.head.labels"}


@pytest.mark.parametrize("batch_norm", ["train", "frozen"])
@pytest.mark.parametrize("old_rows", ["trained", "frozen", "detached"])
def test_only_the_last_block_and_the_rows_asked_for_change(tiny, run, batch_norm: str, old_rows: str) -> None:
    method = untrained("finetune", **{"new.batch_norm": batch_norm, "new.old_rows": old_rows})
    found = changed(learn_two(method, tiny, run), method.state_dict())
    statistics = {f"net.encoder.stages.1.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    weights = {f"net.encoder.stages.1.{name}" for name in ("0.weight", "1.weight", "1.bias")}
    rows = {"net.head.blocks.0"} if old_rows == "trained" else set()
    assert found == weights | rows | (statistics if batch_norm == "train" else set())


def test_the_whole_encoder_where_asked_for(tiny: Benchmark, run: Run) -> None:
    method = untrained("finetune", **{"new.part": "all"})
    found = changed(learn_two(method, tiny, run), method.state_dict())
    assert {name for name in method.state_dict() if name.startswith("net.encoder")} == found - {"net.head.blocks.0"}


def test_nothing_is_left_trainable_after_a_session(tiny: Benchmark, run: Run) -> None:
    method = untrained("finetune")
    learn_two(method, tiny, run)
    assert not any(p.requires_grad for p in method.parameters())
    assert not any(module.training for module in method.net.modules())


@pytest.mark.parametrize(("name", "last"), [("resnet18", "4.1"), ("resnet20", "3.2"), ("resnet12", "3")])
def test_the_last_block_of_each_encoder(name: str, last: str) -> None:
    encoder = encoders.build(name, 32)
    assert encoder.last_block is encoder.stages.get_submodule(last)


def test_an_encoder_in_one_piece_is_refused_before_training(tiny: Benchmark) -> None:
    piece = Encoder(nn.Sequential(nn.Conv2d(3, 16, 4, 4)), 16, 16)
    with pytest.raises(FscilError, match=r"--new\.part all"):
        untrained("finetune", piece).check(tiny)
    untrained("finetune", piece, **{"new.part": "all"}).check(tiny)
    untrained("finetune").check(tiny)


def test_images_without_pixels_are_refused_wherever_they_are_asked_for() -> None:
    with pytest.raises(FscilError, match="the setting pixels holds 0, but an image has at least 1"):
        untrained("finetune", **{"new.pixels": [16, 0]})
