"""An HTML page that needs nothing but itself: ``page.html``, which escapes all text."""

import base64
import html
import re
from pathlib import Path
from typing import Any

from jax_es.config import ConfigError

TEMPLATE = Path(__file__).with_name("page.html")

MEDIA_TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}


def render(**content: Any) -> str:
    """Returns the page.

    Args:
        **content: what the template names.

    Raises:
        ConfigError: if Jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise ConfigError(
            f"reports need Jinja2 ({error}); pip install -e '.[plot]'."
        ) from error
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": shown, "as_table": _as_table}
    environment.tests |= {"nested": is_nested, "plain_records": _is_table}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(**content)


def inline_svg(svg: str, label: str) -> str:
    """Returns a picture as a part of the page.

    Args:
        svg: the file's text.
        label: what the picture shows, for those who cannot see it; no other picture
            of the page has it.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Pictures of one page share their ids' namespace.
    name = re.sub(r"\W+", "-", label)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    attributes = f'role="img" aria-label="{html.escape(label)}" '
    return svg.replace("<svg ", f"<svg {attributes}", 1)


def data_url(file: Path) -> str:
    """Returns a video, or a moving picture, as an address that holds it."""
    data = base64.b64encode(file.read_bytes()).decode()
    return f"data:{MEDIA_TYPES[file.suffix.lower()]};base64,{data}"


def _as_table(records: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Returns heads and rows of plain records, without columns that are all empty."""
    heads = dict.fromkeys(name for record in records for name in record)
    kept = [h for h in heads if any(r.get(h) is not None for r in records)]
    return kept, [[record.get(head) for head in kept] for record in records]


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
