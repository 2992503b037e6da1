"""Give each folder of a built site that has no page a list of its files, so that links to folders lead somewhere."""

import sys
from html import escape
from pathlib import Path
from urllib.parse import quote

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<body style="font: 16px/1.6 sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1rem">
<h1>{title}</h1>
<ul>
{items}
</ul>
</body>
</html>
"""


def write_lists(folder: Path, title: str) -> None:
    """Write index.html into a folder and the folders in it, except where there is one."""
    entries = sorted(folder.iterdir())
    for entry in entries:
        if entry.is_dir():
            write_lists(entry, f"{title}/{entry.name}")
    if not (folder / "index.html").exists():
        names = ["../", *(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)]
        items = "\n".join(f'<li><a href="{quote(name)}">{escape(name)}</a></li>' for name in names)
        (folder / "index.html").write_text(PAGE.format(title=escape(title), items=items), "utf-8")


if __name__ == "__main__":
    write_lists(Path(sys.argv[1]), Path(sys.argv[1]).name)
