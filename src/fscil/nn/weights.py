"""Weights from a local file into a network."""

from pathlib import Path

import torch
from torch import Tensor, nn

from fscil.errors import FscilError

BASE_STATE = "state-00.safetensors"  # of a run folder: what its base session has learned
FIRST_ENCODER = "branches.0.encoder."


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors (or weights-only .pt/.pth) file by name."""
    if not path.is_file():
        raise FscilError(f"there is no weights file {path}; give a .safetensors or .pth file with --weights")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as problem:
        why = problem.strerror or "permissions"  # safetensors does not tell
        raise FscilError(f"{path} cannot be read ({why}); give another file with --weights") from problem
    except Exception as problem:  # not in its own words: torch's advise to trust the file
        advice = "give a .safetensors file, or a .pth file of tensors alone, with --weights"
        raise FscilError(f"{path} is not a readable weights file, or half of one; {advice}") from problem
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise FscilError(f"{path} holds no table of weights by name; give a state_dict")
    return state


def encoder_of_run(folder: Path) -> dict[str, Tensor]:
    """The tensors of the first encoder of a run, as its base session left it."""
    state = read_weights(folder / BASE_STATE)
    encoder = {name.removeprefix(FIRST_ENCODER): tensor for name, tensor in state.items() if FIRST_ENCODER in name}
    if not encoder:
        raise FscilError(f"{folder} holds a run without a first branch; give --weights a run of cosine or kt_rcnet")
    return encoder


def load_weights(net: nn.Module, path: Path) -> None:
    """Loads a file into a network; a classifier in the file is left out."""
    fill(net, read_weights(path), path)


def fill(net: nn.Module, given: dict[str, Tensor], path: Path) -> None:
    """Gives a network the tensors that a file holds under its names."""
    wanted = net.state_dict()
    state = {key: value for key, value in given.items() if key in wanted}
    wrong = [key for key in wanted if key not in state or state[key].shape != wanted[key].shape]
    wrong = [key for key in wrong if not key.endswith("num_batches_tracked")]
    if wrong:
        raise FscilError(f"{path} does not fit {type(net).__name__}: {wrong[0]!r} is missing or has another shape")
    net.load_state_dict({**wanted, **state})
