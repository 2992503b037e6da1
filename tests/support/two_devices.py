"""What each of two processes does for test_devices.py: Fabric starts this file a second time for the second process."""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import fscil.running.runfolder
from apart import Fate, on_tiny_images, tiny_benchmark, tiny_experiment
from fscil.data import PUBLISHED
from fscil.data.images import Framing
from fscil.methods._kt_rcnet_arms import resa
from fscil.methods._kt_rcnet_students import Encoded
from fscil.running.descent import Descent
from fscil.running.devices import Devices, launch
from fscil.running.experiment import build, execute
from fscil.running.runfolder import RunFolder
from fscil.running.stages import Loop
from fscil.running.training import Run

MEAN = STD = (0.5, 0.5, 0.5)


def episode_gradients(devices: Devices) -> dict[str, Tensor]:
    """Gradients of f2 after one step of RESA with frozen batch statistics, in float32."""
    changes = {"batch_norm": "frozen", "transfer.epochs": 1, "tasks": 1}
    method = build(tiny_experiment(Path("unused"), changes=changes), "float32", devices.device)
    base = tiny_benchmark(PUBLISHED).base()
    run = unwritten(devices)
    for x in run.batches(base.train, method.test_framing(base)):
        method.f2.train()(x)  # batch statistics that are worth freezing
    for branch in method.branches:
        method.weight_computing(branch, base, run)
    resa(Encoded(method, base, run))
    return {name: p.grad for name, p in method.f2.named_parameters()}


def batch_gradients(devices: Devices) -> dict[str, Tensor]:
    """Gradients of a linear classifier after one batch of an odd number of images."""
    images = tiny_benchmark(PUBLISHED).base().train.select(torch.arange(45))
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 6))
    for p in net.parameters():
        nn.init.zeros_(p)
    framing = Framing(16, MEAN, STD, tiny_experiment(Path("unused")).config.augment)
    for epoch in unwritten(devices).epochs("linear", net, net, Descent(epochs=1), 1):
        for x, y in epoch.batches(images, framing, 45):
            epoch.step(nn.functional.cross_entropy(net(x), y))
    return {name: p.grad for name, p in net.named_parameters()}


def unwritten(devices: Devices) -> Run:
    return Run(RunFolder(Path("unused"), writable=False), 0, Path("unused"), devices)


def count_writes() -> list[Path]:
    written: list[Path] = []
    write = fscil.files.write_bytes

    def counted(path: Path, content: bytes) -> None:
        written.append(path)
        write(path, content)

    fscil.files.write_bytes = fscil.running.runfolder.write_bytes = counted
    return written


def count_barriers() -> list[str]:
    """Where this process waits for all others: in a step of the optimiser or elsewhere, as where it has written."""
    waits, places, barrier, descend = [], ["elsewhere"], torch.distributed.barrier, Loop.descend

    def counted(*positional: Any, **named: Any) -> None:
        waits.append(places[-1])
        barrier(*positional, **named)

    def descended(loop: Loop, loss: Tensor, done: int) -> None:
        places.append("step")
        descend(loop, loss, done)
        places.pop()

    torch.distributed.barrier, Loop.descend = counted, descended
    return waits


def timeout() -> timedelta:
    """How long a process waits for another."""
    connection = torch.distributed.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    limit: timedelta = connection.options._timeout
    return limit


def main(out: Path, task: str, step: int = 0) -> None:
    devices = launch(2)
    if task == "gradients":
        waits = count_barriers()
        found = {"episode": episode_gradients(devices), "batch": batch_gradients(devices)}
        tensors = {f"{what}.{name}": g.contiguous() for what, grads in found.items() for name, g in grads.items()}
        save_file(tensors, out / f"gradients-{devices.rank}.safetensors")
        written = count_writes()
        for seed in (0, 1):
            execute(tiny_experiment(out, devices=2, seed=seed))
        (out / f"written-{devices.rank}.txt").write_text("\n".join(map(str, written)))
        (out / f"waits-{devices.rank}.json").write_text(json.dumps({"barriers": waits, "days": timeout().days}))
    else:
        if step:
            Fate("fscil.running.stages:Loop.after", step).prepare()
        execute(tiny_experiment(out, devices=2))


if __name__ == "__main__":
    with on_tiny_images():
        main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
