"""Reduce SVG files to a third of their size, without visible changes.

Matplotlib writes absolute coordinates to a millionth of a point, and a long element for
each letter. Here coordinates are relative and to a hundredth of a point, and the
elements of letters are short.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

TAKES = {"M": 2, "L": 2, "Q": 4, "C": 6, "z": 0}
"""Command of a path -> the number of its arguments."""

LETTER_AT = re.compile(r'" transform="translate\(([\d.]+) 0\)"/>')
TOKEN = re.compile(r"[MLQCz]|-?[\d.]+(?:e-?\d+)?")
SHORTER: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r" <metadata>.*?</metadata>", re.DOTALL), ""),
    (re.compile(r"<!-- .*? -->", re.DOTALL), ""),
    (re.compile(r'(["#])DejaVuSans-([\w-]+")'), r"\1g\2"),
    # The horizontal offset of a letter in its text, in hundredths of its size.
    (LETTER_AT, lambda of: f'" x="{float(of[1]):.0f}"/>'),
    (re.compile(r'<g id="(?!text_)[^"]*"'), "<g"),
    (re.compile(r"([:;]) (?=[^<>]*>)"), r"\1"),
    (re.compile(r"\s*\n\s*"), "\n"),
)
"""Patterns and their replacements."""

PATH = re.compile(r' d="([^"]*)"')
LETTER = re.compile(r' d="([^"]*)"\s+transform="scale\(0\.015625\)"')
COARSER = 16
"""The factor by which the units of letters grow; a line is then 400 units high."""

GROUP = re.compile(r"(<g(?: [^>]*[^>/])?>\n?|</g>\n?)")
PLACE = re.compile(r'translate\([^)]*\)| [xy]="[^"]*"')
DECIMAL = re.compile(r"-?\d+\.\d+")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
HASH = re.compile(r'(?<=["#])[mp][0-9a-f]{10}(?=[")])')
STYLE = re.compile(r' style="([^"]*)"')


def compact(text: str) -> str:
    """Return a much shorter SVG that looks the same as the one of matplotlib."""
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
    """Remove groups without attributes, but keep their content."""
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
    """Replace styles that several elements share by classes."""
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
    """Return hundredths as a decimal number without redundant zeros."""
    sign, whole = "-" if hundredths < 0 else "", abs(hundredths)
    text = f"{whole // 100}.{whole % 100:02}".rstrip("0").rstrip(".")
    return sign + (text.removeprefix("0") or "0")


def _relative(path: str) -> Iterator[str]:
    """Yield the commands of a path with coordinates relative to the previous point."""
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
    """Join numbers with spaces, but not before a minus or a ``bare`` first number."""
    texts = [_short(number) for number in numbers]
    gaps = ["" if text[0] == "-" else " " for text in texts]
    if gaps and bare:
        gaps[0] = ""
    return "".join(gap + text for gap, text in zip(gaps, texts, strict=True))
