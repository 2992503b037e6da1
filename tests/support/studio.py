"""What people do on the studio, and what they see there."""

from pathlib import Path
from typing import Any

from fscil.teach.storage import modelfile

DROP = """([selector, names, bytes]) => {
    const transfer = new DataTransfer();
    names.forEach((name, i) => transfer.items.add(new File([Uint8Array.from(bytes[i])], name)));
    const zone = document.querySelector(selector);
    zone.dispatchEvent(new DragEvent("dragover", {dataTransfer: transfer, bubbles: true, cancelable: true}));
    zone.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""


def texts(page: Any, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def ask(page: Any, *files: Path) -> None:
    page.set_input_files("#ask-file", files)


def teach(page: Any, name: str, files: list[Path]) -> None:
    page.set_input_files("#teach-file", files)
    page.fill("#name", name)
    page.click("#teach-go")
    page.wait_for_selector(f".toast:has-text('{name}')")


def choose_folders(page: Any, folder: Path) -> None:
    """A folder of folders to teach from: an input takes what otherwise only a drop can bring."""
    page.locator("#teach-file").evaluate("input => input.setAttribute('webkitdirectory', '')")
    page.set_input_files("#teach-file", folder)
    page.locator("#teach-file").evaluate("input => input.removeAttribute('webkitdirectory')")


def drop(page: Any, selector: str, files: list[Path]) -> None:
    page.evaluate(DROP, [selector, [file.name for file in files], [list(file.read_bytes()) for file in files]])


def names(file: Path) -> list[str]:
    return [str(name) for name in modelfile.load(file).names.values()]
