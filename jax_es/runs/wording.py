"""How numbers and tables are written for people, in lines, files and pages."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np


def significant(value: float, decimals: int = 0, thousands: str = ",") -> str:
    """Writes a return, or what is counted in its unit, of whatever size.

    It has at least three significant digits, a whole number only its own, and
    ``decimals`` decimals.

    Example:
        >>> [significant(value) for value in (12345.6, 54.32, 9.0, -0.00456)]
        ['12,346', '54.3', '9', '-0.00456']
    """
    is_whole = not math.isfinite(value) or value == round(value)
    exponent = 2 if is_whole else math.floor(math.log10(abs(value)))
    if exponent < -4:
        return f"{value:.2e}"
    return f"{value:{thousands}.{max(decimals, 2 - exponent)}f}"


def counted(number: int, what: str) -> str:
    """Writes how many there are.

    Example:
        >>> counted(1, "episode"), counted(12000, "episode")
        ('1 episode', '12,000 episodes')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def spread(values: Sequence[float], form: Callable[[float], str] = significant) -> str:
    """Returns the only value, or the median of several and their range.

    Example:
        >>> spread([0.5, 1.0, np.inf], "{:.0%}".format)
        '100 % (50 % to ∞)'
    """
    parts = np.median(values), min(values), max(values)
    texts = ["∞" if np.isinf(part) else form(part) for part in parts]
    texts = [text.replace("%", " %") for text in texts]
    return texts[0] if len(values) == 1 else "{} ({} to {})".format(*texts)


def markdown(
    heads: Sequence[str], rows: Iterable[Sequence[str]], aligned: bool = False
) -> str:
    """Returns a Markdown table.

    Args:
        heads: of the columns.
        rows: their cells.
        aligned: whether its source has columns of one width each, for a terminal.

    Example:
        >>> print(markdown(["name", "n"], [["a", "10"]], aligned=True))
        | name | n  |
        |------|----|
        | a    | 10 |
    """
    cells = [heads, *rows]
    if aligned:
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        cells = [[*map(str.ljust, line, widths)] for line in cells]
        rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    else:
        rule = f"|{' --- |' * len(heads)}"
    head, *body = (f"| {' | '.join(line)} |" for line in cells)
    return "\n".join([head, rule, *body])
