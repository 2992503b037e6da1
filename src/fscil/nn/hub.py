"""Weights from the model hub: downloaded once, with a bar, kept in the hub's own cache and compared with its digest."""

import hashlib
import re
import urllib.error
import urllib.request
from pathlib import Path

from fscil.errors import FscilError

FILE = "model.safetensors"
PATIENCE = 10  # seconds without an answer
DIGEST = re.compile("[0-9a-f]{64}")


def cached(repository: str, name: str = FILE) -> Path | None:
    """The weights of a repository where they were downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repository, name)
    return Path(path) if isinstance(path, str) else None


def weights_file(repository: str, name: str = FILE) -> Path:
    """The weights of a repository of the hub, which is asked only if they are not here yet."""
    path = cached(repository, name) or _downloaded(repository, name)
    blob = path.resolve()
    if DIGEST.fullmatch(blob.name) is None:  # a cache without links: the hub's client has compared the sizes
        return path
    with blob.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() == blob.name:
            return path
    blob.unlink()
    path.unlink()
    raise FscilError(f"{name} of {repository} is not what the model hub announced and was deleted: try again")


def _downloaded(repository: str, name: str) -> Path:
    from huggingface_hub import hf_hub_download, hf_hub_url

    try:
        _reach(hf_hub_url(repository, name))
        return Path(hf_hub_download(repository, name))
    except Exception as problem:  # the hub's client has many kinds
        raise FscilError(
            f"the weights of {repository} could not be downloaded from the model hub ({_reason(problem)}); try again "
            f"with a network, give the file {name} with --weights, or take an encoder that needs none: "
            "efficientnet_lite0"
        ) from problem


def _reach(url: str) -> None:
    """Fails at once where there is no network; the hub's client would try for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise FscilError("the variable HF_HUB_OFFLINE is set")
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PATIENCE).close()
    except urllib.error.HTTPError as answer:
        if answer.code == 404:
            raise FscilError("there is no such file") from answer


def _reason(problem: Exception) -> str:
    """Why a download failed, in words of ours: the client's name addresses and kinds of exceptions."""
    if isinstance(problem, FscilError):
        return str(problem)
    if isinstance(problem, urllib.error.URLError | ConnectionError | TimeoutError):
        return "it cannot be reached"
    status = getattr(getattr(problem, "response", None), "status_code", None)
    if status is not None:
        return f"it answered with the status {status}"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return "its client could not fetch them"
