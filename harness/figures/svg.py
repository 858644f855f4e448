"""SVG files of a third of the size: what a reader cannot see is left out.

Matplotlib writes absolute coordinates to a millionth of a point and a long element for
each letter. Here paths are relative, to a hundredth of a point, and letters short.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

__all__ = ["compact"]

TAKES = {"M": 2, "L": 2, "Q": 4, "C": 6, "z": 0}
"""Command of a path -> how many numbers follow it."""

LETTER_AT = re.compile(r'" transform="translate\(([\d.]+) 0\)"/>')
TOKEN = re.compile(r"[MLQCz]|-?[\d.]+(?:e-?\d+)?")
SHORTER: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r" <metadata>.*?</metadata>", re.DOTALL), ""),
    (re.compile(r"<!-- .*? -->", re.DOTALL), ""),
    (re.compile(r'(["#])DejaVuSans-([\w-]+")'), r"\1g\2"),
    # In a text the next letter lies further right, by hundredths of its size.
    (LETTER_AT, lambda of: f'" x="{float(of[1]):.0f}"/>'),
    (re.compile(r'<g id="(?!text_)[^"]*"'), "<g"),
    (re.compile(r"([:;]) (?=[^<>]*>)"), r"\1"),
    (re.compile(r"\s*\n\s*"), "\n"),
)
"""Patterns and what takes their place."""

PATH = re.compile(r' d="([^"]*)"')
LETTER = re.compile(r' d="([^"]*)"\s+transform="scale\(0\.015625\)"')
COARSER = 16
"""By how much the units of letters grow, of which 400 are then as high as a line."""

GROUP = re.compile(r"(<g(?: [^>]*[^>/])?>\n?|</g>\n?)")
PLACE = re.compile(r'translate\([^)]*\)| [xy]="[^"]*"')
DECIMAL = re.compile(r"-?\d+\.\d+")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
HASH = re.compile(r'(?<=["#])[mp][0-9a-f]{10}(?=[")])')
STYLE = re.compile(r' style="([^"]*)"')


def compact(text: str) -> str:
    """Return an SVG of matplotlib that looks the same and is much shorter."""
    for pattern, shorter in SHORTER:
        text = pattern.sub(shorter, text)
    text = PLACE.sub(lambda of: DECIMAL.sub(_rounded, of[0]), text)
    numbers = {
        name: f"n{k}" for k, name in enumerate(dict.fromkeys(HASH.findall(text)))
    }
    text = HASH.sub(lambda of: numbers[of[0]], text)
    text = LETTER.sub(_letter, _with_classes(_without_bare_groups(text)))
    return PATH.sub(lambda of: f' d="{"".join(_relative(of[1]))}"', text)


def _without_bare_groups(text: str) -> str:
    """Leave out groups that have no attribute, and keep what is in them."""
    parts, open_groups = [], list[bool]()
    for part in GROUP.split(text):
        keep = True
        if part.startswith("</g>"):
            keep = open_groups.pop()
        elif GROUP.fullmatch(part):
            keep = part.strip() != "<g>"
            open_groups.append(keep)
        if keep:
            parts.append(part)
    return "".join(parts)


def _letter(of: re.Match[str]) -> str:
    """Return a letter's outline in larger units."""
    path = NUMBER.sub(lambda number: str(round(float(number[0]) / COARSER)), of[1])
    return f' d="{path}" transform="scale({COARSER / 64})"'


def _with_classes(text: str) -> str:
    """Write styles that several elements have once, as classes."""
    counts = Counter(STYLE.findall(text))
    shared = [style for style, count in counts.items() if count > 2]
    names = {style: f"s{number}" for number, style in enumerate(shared)}
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())

    def shorter(of: re.Match[str]) -> str:
        return f' class="{names[of[1]]}"' if of[1] in names else of[0]

    return STYLE.sub(shorter, text).replace("</style>", f"{rules}</style>", 1)


def _rounded(number: re.Match[str]) -> str:
    return _short(round(100 * float(number[0])))


def _short(hundredths: int) -> str:
    """Write a number of hundredths without zeros that say nothing."""
    sign, whole = "-" if hundredths < 0 else "", abs(hundredths)
    text = f"{whole // 100}.{whole % 100:02}".rstrip("0").rstrip(".")
    return sign + (text.removeprefix("0") or "0")


def _relative(path: str) -> Iterator[str]:
    """Yield the commands of a path with coordinates from the point before."""
    tokens = iter(TOKEN.findall(path))
    x = y = 0
    start, before = (0, 0), ""
    for command in tokens:
        numbers = [round(100 * float(next(tokens))) for _ in range(TAKES[command])]
        steps = [n - (y if k % 2 else x) for k, n in enumerate(numbers)]
        x, y = numbers[-2:] if numbers else start
        start = (x, y) if command == "M" else start
        name = "" if command == before != "M" else command.lower()
        before = command
        yield name + _joined(steps, bare=bool(name))


def _joined(numbers: list[int], bare: bool) -> str:
    """Join numbers by a space where no minus parts them; none before a bare first."""
    texts = [_short(number) for number in numbers]
    gaps = ["" if text[0] == "-" else " " for text in texts]
    if gaps and bare:
        gaps[0] = ""
    return "".join(gap + text for gap, text in zip(gaps, texts, strict=True))
