"""Every method learns on a device that is no CPU what it learns on the CPU, to the bit; mixing the two raises."""

import pytest
import torch
from safetensors.torch import load_file
from test_contract import build
from torch.nn.attention import SDPBackend, sdpa_kernel

import fscil.running.experiment
from apart import always_tiny  # noqa: F401 (a fixture)
from fscil import methods, settings
from fscil.running import trying
from fscil.running.devices import Devices
from fscil.running.experiment import RunSpec, execute
from pretend import DEVICE, pretended
from quick import LEARNS, OWN

SHORT = {"sppr": {"transfer.epochs": 1}, "c_fscil": {"nudge.epochs": 2, "align.epochs": 2}}
VARIANTS = {
    **{name: (name, {}) for name in methods.names()},
    "icarl, reduced": ("icarl", {"reduction.on": True, "reduction.anchors": 18, "reduction.distill": 1.0}),
    "joint, restarted": ("joint", {"restart": True, "balanced": True}),
    "kt_rcnet, fitted": (
        "kt_rcnet",
        {"start": "own", "shrinkage": 0.0, "unit_means": True, "complement_weight": 0.0, "feature_scale": 0.0},
    ),
    "kt_rcnet, map": ("kt_rcnet", {"trains": "map", "feature_scale": 0.0, "synthesis": "mixup"}),
    "kt_rcnet, rotation": ("kt_rcnet", {"complement": "rotation", "statistics": "upright"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_another_device_computes_the_same(variant, tmp_path, monkeypatch):
    method, changes = VARIANTS[variant]
    wanted = {**LEARNS, **OWN.get(method, {}), **changes, "base.epochs": 2, **SHORT.get(method, {})}
    config = settings.resolve(methods.load(method).Config, method, "tiny", "small", wanted)

    def learned(out: str) -> dict[str, torch.Tensor]:
        spec = {"method": method, "dataset": "tiny", "recipe": "small", "config": config, "precision": "float32"}
        folder = execute(RunSpec(**spec, out=tmp_path / out))
        files = sorted(folder.glob("*.safetensors"))
        return {f"{file.name} {name}": tensor for file in files for name, tensor in load_file(file).items()}

    with sdpa_kernel(SDPBackend.MATH):  # attention of torch is another kernel where it does not know the device
        here = learned("here")
        monkeypatch.setattr(fscil.running.experiment, "launch", lambda count: Devices(device=DEVICE))
        with pretended():
            there = learned("there")
    assert here.keys() == there.keys()
    for name, tensor in here.items():
        assert torch.equal(there[name], tensor), name


@pytest.mark.parametrize("arm", ["resa", "conventional", "means", "rotation"])
def test_a_step_of_a_map_is_timed_there(arm, tiny, monkeypatch):
    monkeypatch.setattr(trying, "PATIENCE", 0.0)
    with pretended():
        method = build("kt_rcnet", {"trains": "map", "complement": arm}).to(DEVICE)
        assert method.step_seconds(tiny.base(5), trying.trial(DEVICE, torch.float32)) > 0


def test_mixing_devices_raises():
    with pretended():
        there = torch.zeros(3).to(DEVICE)
        assert (there + torch.tensor(1.0)).device == DEVICE  # a number alone may come from main memory
        with pytest.raises(RuntimeError, match="mixes"):
            there + torch.zeros(3)
        with pytest.raises(RuntimeError, match="mixes"):
            torch.cat([there, torch.zeros(3)])
