"""The mean of the weights over the last steps of a stage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.methods import meta_fscil
from fscil.nn.muon import Muon
from fscil.running.descent import Descent
from fscil.running.devices import Devices
from fscil.running.runfolder import RunFolder
from fscil.running.stages import Loop
from fscil.running.training import Run
from fscil.settings import resolve

STEPS = 4  # of an epoch


class Killed(Exception):
    pass


class OneOfTwo(Devices):
    """One of two devices with the same images; what is collected of the second is that of the first plus one."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.count = rank, 2

    def average(self, tensors: object) -> None:
        pass

    def agree(self, value: object) -> object:
        return value

    def totals(self, *numbers: int) -> list[int]:
        return [*numbers]

    def collect(self, tensors: list[Tensor]) -> Tensor:
        own = self._joined(tensors)
        return torch.stack([own, own + 1])


def net() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 1)).to(
            memory_format=torch.channels_last
        )


def run_in(folder: Path, devices: Devices | None = None) -> Run:
    there = RunFolder(folder)
    there.open({"format": 1})
    return Run(there, 0, folder / "cache", devices or Devices(), checkpoint_seconds=0.0)


def train(
    run: Run, trained: nn.Module, descent: Descent, after: Callable[[int], None] = lambda done: None
) -> list[dict[str, Tensor]]:
    """Trains on random images of each step; gives the states after each step made."""
    states = []
    for epoch in run.epochs("stage", trained, trained, descent, STEPS):
        for i in range(epoch.start, STEPS):
            x = torch.randn(6, 3, 4, 4, generator=epoch.rng("images", i))
            epoch.step((trained(x) - 1).square().mean())
            states.append({name: value.clone() for name, value in trained.state_dict().items()})
            after(epoch.number * STEPS + epoch.next)
    return states


@pytest.mark.parametrize("optimizer", ["sgd", "muon", "adamw"])
def test_the_net_ends_as_the_mean_over_the_last_steps(tmp_path: Path, optimizer: str) -> None:
    plain, averaged = net(), net()
    states = train(run_in(tmp_path / "plain"), plain, Descent(epochs=3, optimizer=optimizer))
    train(run_in(tmp_path / "averaged"), averaged, Descent(epochs=3, optimizer=optimizer, average=0.4))
    last = states[-5:]  # 0.4 of 12 steps
    for name, value in averaged.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, torch.stack([state[name] for state in last]).mean(0))
        else:
            assert value == last[-1][name]
    assert not torch.equal(averaged[0].weight, plain[0].weight)
    assert not torch.equal(averaged[1].running_mean, plain[1].running_mean)


def test_off_by_default_the_net_ends_as_the_last_step_left_it(tmp_path: Path) -> None:
    trained = net()
    states = train(run_in(tmp_path), trained, Descent(epochs=2))
    assert all(torch.equal(value, states[-1][name]) for name, value in trained.state_dict().items())


@pytest.mark.parametrize("moment", [2, 5, 8, 11])  # before, at the beginning of and within the last 7 of 12 steps
def test_a_killed_stage_goes_on_with_its_means(tmp_path: Path, moment: int) -> None:
    descent = Descent(epochs=3, average=0.6)

    def kill(done: int) -> None:
        if done == moment:
            raise Killed

    calm, before, resumed = net(), net(), net()
    train(run_in(tmp_path / "calm"), calm, descent)
    with pytest.raises(Killed):
        train(run_in(tmp_path / "killed"), before, descent, kill)
    made = train(run_in(tmp_path / "killed"), resumed, descent)
    assert len(made) == 12 - moment
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in calm.state_dict().items())
    assert train(run_in(tmp_path / "killed"), net(), descent) == []  # finished: its file holds the means


def test_a_file_without_the_means_is_refused(tmp_path: Path) -> None:
    def kill(done: int) -> None:
        if done == 9:
            raise Killed

    with pytest.raises(Killed):
        train(run_in(tmp_path), net(), Descent(epochs=3), kill)
    with pytest.raises(FscilError, match="a part of it is missing"):
        train(run_in(tmp_path), net(), Descent(epochs=3, average=0.6))


def test_each_of_several_devices_goes_on_with_its_own_means_of_statistics(tmp_path: Path) -> None:
    descent = Descent(epochs=3, average=0.6)

    def kill(done: int) -> None:
        if done == 9:
            raise Killed

    with pytest.raises(Killed):
        train(run_in(tmp_path / "0", OneOfTwo(0)), net(), descent, kill)
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    ends = [net(), net()]
    for rank, resumed in enumerate(ends):
        train(run_in(tmp_path / str(rank), OneOfTwo(rank)), resumed, descent)
    calm = net()
    train(run_in(tmp_path / "calm"), calm, descent)
    assert torch.equal(ends[0][1].running_mean, calm[1].running_mean)
    assert torch.equal(ends[1][0].weight, calm[0].weight)  # weights are those of all devices
    # Of 7 steps four were counted before, one higher here; behind them what is higher fades by 0.9 a step.
    higher = (4 * 1 + 0.9 + 0.9**2 + 0.9**3) / 7
    torch.testing.assert_close(ends[1][1].running_mean, calm[1].running_mean + higher)


def test_steps_outside_of_a_stage_have_no_mean() -> None:
    with pytest.raises(FscilError, match="average 0"):
        resolve(meta_fscil.Config, "meta_fscil", "tiny", "paper", {"inner.average": 0.5})


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_muon_orthogonalises_in_the_precision_of_the_run(silent: Run, precision: str) -> None:
    silent.precision, net = precision, nn.Conv2d(4, 4, 3)
    muon = Loop(silent, "base", net, net, Descent(optimizer="muon"), steps=1, stop_after=0).optimiser
    assert isinstance(muon, Muon)
    assert muon.precision == getattr(torch, precision)
