"""What MkDocs does besides: notebooks, and files beside README, become pages.

Nothing is executed: a page holds the cells of ``notebooks/*.ipynb`` and the outputs
that stand in the file.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(<code>)(?:~[\w.]*\.)?")
"""What Sphinx reads before a name in a docstring; a page shows the name alone."""

CODE = re.compile(r"<code>[^<]*</code>")
OPTION = re.compile(r"(?<![\w-])--?\w[\w.-]*")


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for each notebook, with its pictures, and those of the root."""
    from mkdocs.structure.files import File

    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name.lower(), content=text))
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        text, pictures = page(json.loads(path.read_text()), path.stem)
        contents = {f"{path.stem}.md": text, **pictures}
        for name, content in contents.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Leaves out the roles of docstrings, and one colon of two before code.

    An option in a text gets a class, since browsers end lines after its hyphens.
    """
    html = html.replace("::</p>", ":</p>")
    html = ROLE.sub(r"\1", html)
    option = r'<span class="option">\g<0></span>'
    return CODE.sub(lambda code: OPTION.sub(option, code[0]), html)


def page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Returns a notebook as Markdown, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode(data["image/png"])
                parts.append(f"![What the cell draws]({file})")
            elif "text/markdown" in data:
                parts.append("".join(data["text/markdown"]))
            else:
                printed = output.get("text", data.get("text/plain", ""))
                text = "".join(printed).rstrip()
                parts.append(f"``` {{.text .output}}\n{text}\n```")
    return "\n\n".join(parts) + "\n", pictures
