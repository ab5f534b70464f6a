"""An HTML page that needs nothing but itself; whatever is not markup is escaped."""

import base64
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 74rem; margin: 0 auto; padding: 0 1rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 1.5rem 0 0.25rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.5rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.5rem 0 0.25rem; }
.wide { overflow-x: auto; }
.wide svg { min-width: 34rem; max-width: 48rem; }
.figures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; }
.figures figure { max-width: 36rem; }
svg, img, video { max-width: 100%; height: auto; }
svg { width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0;
  border-bottom: 1px solid #ddd; white-space: nowrap; }
code, pre { font: 0.875em/1.5 ui-monospace, monospace; }
pre { background: #f3f3f3; padding: 0.75rem; white-space: pre-wrap; }
figcaption, .note { color: #555; font-size: 0.875rem; }
summary { cursor: pointer; }
"""

POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
"""Tells the browser to load nothing, should anything on the page ever ask for it."""

MEDIA_TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}


class Markup(str):
    """HTML; any other text is escaped where it enters a page."""


def element(tag: str, *content: str, **attributes: str | bool) -> Markup:
    """Returns an element.

    Args:
        tag: its name.
        *content: markup, or text to escape.
        **attributes: by name, where ``_`` ends a name that Python reserves; ``True``
            is an attribute without a value.

    Example:
        >>> element("p", "1 < 2", class_="note")
        '<p class="note">1 &lt; 2</p>'
    """
    listed = "".join(
        f" {name.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(str(value))}"')
        for name, value in attributes.items()
    )
    return Markup(f"<{tag}{listed}>{joined(content)}</{tag}>")


def joined(content: Iterable[str]) -> Markup:
    """Returns pieces of markup, and of text to escape, as one."""
    return Markup(
        "".join(
            piece if isinstance(piece, Markup) else html.escape(str(piece))
            for piece in content
        )
    )


def document(title: str, *content: str) -> Markup:
    """Returns a whole page."""
    return joined(
        [
            Markup('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'),
            Markup('<meta name="viewport" content="width=device-width">\n'),
            Markup(
                '<meta http-equiv="Content-Security-Policy" '
                f'content="{html.escape(POLICY)}">\n'
            ),
            element("title", title),
            Markup(f"<style>{STYLE}</style></head>\n<body>\n"),
            *content,
            Markup("\n</body></html>\n"),
        ]
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markup:
    """Returns a table that scrolls by itself where the screen is narrower."""
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    body = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    return element(
        "div",
        element("table", element("thead", head), element("tbody", *body)),
        class_="wide",
    )


def inline_svg(svg: str, name: str, label: str) -> Markup:
    """Returns a picture as a part of the page.

    Args:
        svg: the file's text.
        name: a word that no other picture of the page has.
        label: what the picture shows, for those who cannot see it.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Pictures of one page share their ids' namespace.
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    attributes = f'role="img" aria-label="{html.escape(label)}" '
    return Markup(svg.replace("<svg ", f"<svg {attributes}", 1))


def film(file: Path) -> Markup:
    """Returns a video, or a moving picture, as a part of the page."""
    media_type = MEDIA_TYPES[file.suffix.lower()]
    data = base64.b64encode(file.read_bytes()).decode()
    source = f"data:{media_type};base64,{data}"
    if media_type.startswith("image"):
        return Markup(f'<img alt="{html.escape(file.name)}" src="{source}">')
    return element(
        "video", src=source, controls=True, loop=True, muted=True, playsinline=True
    )


def json_values(values: Any, is_open: bool = True) -> Markup:
    """Shows JSON: plain records by rows, anything else by name, parts of parts folded.

    Args:
        values: from ``json.loads``.
        is_open: whether parts in a list are shown unfolded; those of parts are not.
    """
    if _is_table(values):
        heads = dict.fromkeys(name for row in values for name in row)
        heads = [h for h in heads if any(row.get(h) is not None for row in values)]
        return table(heads, [[shown(row.get(h)) for h in heads] for row in values])
    if isinstance(values, list):
        return joined(
            element(
                "details",
                element("summary", shown(value.get("run", f"{number}"))),
                json_values(value, False),
                **({"open": True} if is_open else {}),
            )
            for number, value in enumerate(values, 1)
        )
    plain = [[k, shown(v)] for k, v in values.items() if not is_nested(v)]
    parts = [table(["", ""], plain)] if plain else []
    for name, value in values.items():
        if is_nested(value):
            parts += [element("h3", name), json_values(value, is_open)]
    return joined(parts)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and not any(
        is_nested(cell) for row in value for cell in row.values()
    )


def is_nested(value: Any) -> bool:
    """Returns whether a JSON value is an object or a list of objects."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, dict) for item in value)
    return isinstance(value, dict)


def shown(value: Any) -> str:
    """Returns a JSON value as people read it."""
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return str(value)
