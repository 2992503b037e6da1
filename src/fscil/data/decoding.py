"""Work on many image files at once, with a progress bar."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fscil.data.images import FileImages, Images, Ingredients, TensorImages, decode
from fscil.running.progress import Bar

Result = TypeVar("Result")


def over_files(task: Callable[[str], Result], paths: Sequence[str], title: str) -> Iterator[Result]:
    """The task's result for each path, in order; threads suffice because Pillow decodes outside Python's lock."""
    with ThreadPoolExecutor(os.cpu_count()) as pool, Bar(title, len(paths)) as bar:
        try:
            for done, result in enumerate(pool.map(task, paths), start=1):
                yield result
                bar.advance(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def in_memory(ingredients: Ingredients) -> Ingredients:
    """The same data set with its files decoded, if it asks for that."""
    if not ingredients.squeeze:
        return ingredients
    train, test = (_decoded(images, ingredients.pixels) for images in (ingredients.train, ingredients.test))
    return replace(ingredients, train=train, test=test, squeeze=False)


def _decoded(images: Images, pixels: int) -> TensorImages:
    assert isinstance(images, FileImages)

    def squeezed(path: str) -> Tensor:
        picture = decode(path)
        if picture.size != (pixels, pixels):
            picture = picture.resize((pixels, pixels), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.array(picture))

    stored = torch.empty(len(images), pixels, pixels, 3, dtype=torch.uint8)
    for row, picture in enumerate(over_files(squeezed, images.paths, f"reading {len(images)} images")):
        stored[row] = picture
    return TensorImages(stored.permute(0, 3, 1, 2), images.labels)
