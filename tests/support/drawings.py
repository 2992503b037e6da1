"""What is drawn in an SVG file: coordinates that depend neither on fonts nor on the version of matplotlib."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


def named(file: Path, start: str) -> dict[str, ET.Element]:
    """The groups whose names begin so, by their names."""
    groups = {group.get("id", ""): group for group in ET.parse(file).iter(f"{SVG}g")}
    return {name: group for name, group in groups.items() if name.startswith(start)}


def curves(file: Path) -> dict[str, list[float]]:
    """Coordinates of each curve of an SVG file."""
    paths = {name: group.find(f"{SVG}path") for name, group in named(file, "curve ").items()}
    return {
        name: [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", ""))]
        for name, path in paths.items()
        if path is not None
    }
