"""Check a built documentation site: every link inside it leads somewhere, and nothing is loaded from elsewhere."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

RESOURCES = {"src", "srcset", "href", "poster", "data"}  # attributes with an address
OUTSIDE_CSS = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


@dataclass
class Page(HTMLParser):
    """What a page points to, as (tag, address), and the anchors it offers."""

    links: list[tuple[str, str]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.links += [(tag, word) for name in RESOURCES & set(values) for word in addresses(name, values[name])]


def addresses(attribute: str, value: str) -> list[str]:
    """The addresses in an attribute; `srcset` lists several, each with a size."""
    if attribute == "srcset":
        return [part.split()[0] for part in value.split(",") if part.split()]
    return [value]


def read(site: Path) -> dict[Path, Page]:
    pages = {}
    for file in sorted(site.rglob("*.html")):
        pages[file] = Page()
        pages[file].feed(file.read_text("utf-8"))
    return pages


def problems(site: Path) -> Iterator[str]:
    """One sentence for each link that is dead and each thing that would be loaded from another server."""
    site = site.resolve()
    pages = read(site)
    if site / "index.html" not in pages:
        yield f"{site} has no index.html: build the site first"
    for file, page in pages.items():
        for tag, address in page.links:
            if problem := fault(site, file, tag, address, pages):
                yield f"{file.relative_to(site)}: {problem}"
    for style in sorted(site.rglob("*.css")):
        for address in OUTSIDE_CSS.findall(style.read_text("utf-8")):
            yield f"{style.relative_to(site)}: loads {address} from another server"


def fault(site: Path, file: Path, tag: str, address: str, pages: dict[Path, Page]) -> str | None:
    """What is wrong with one address of a page, or None."""
    parts = urlsplit(address)
    if parts.scheme in ("http", "https") or parts.netloc:
        return None if tag == "a" else f"loads {address} from another server"
    if parts.scheme:
        return None
    place = unquote(parts.path)
    target = file if not place else (site / place.lstrip("/") if place.startswith("/") else file.parent / place)
    target = target.resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return f"links to {address}, which is not part of the site"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return f"links to {address}, but that page has no such heading"
    return None


def main() -> int:
    site = Path(sys.argv[1])
    sentences = list(problems(site))
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    if not sentences:
        print(f"{site}: every link leads somewhere, nothing is loaded from elsewhere")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
