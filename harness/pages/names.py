"""The arguments of the originals on each backend, from recorded signatures.

The signatures are read from a file that a test keeps current, so no framework
is needed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from harness.pages.tables import CARDS, Cell, table
from harness.pages.templating import render
from harness.processes.children import ROOT
from lockstep import reference
from lockstep.registry import BACKENDS
from lockstep.tests.original_signatures import SIGNATURES

REQUIRED, ABSENT = "required", "–"
RECORDED = ROOT / "impls" / "lockstep" / "tests" / "signatures.json"

REASONS: Mapping[str, str] = {
    "params": "PyTorch makes an optimizer of parameters, and they come first.",
    "options": "Options of every Keras optimizer, such as clipnorm and use_ema.",
    "name": "PyTorch's optimizers have no names; one that is given is kept.",
    "learning_rate": "In PyTorch, the rate of NovoGrad has no default.",
    "beta": "Newer than TensorFlow 1.15; added to the root of the accumulator.",
    "use_own_namescope_for_non_slot_vars": "Where TensorFlow 1 keeps Adam's powers.",
    "strict": "Reproduce the original to the bit, quirks included.",
    "capturable": "Keep all numbers on the device, for CUDA graphs.",
    "clip_norm": "Clip the unscaled gradients within the step.",
    "at_floor": "What happens when the scale is at its floor and steps are skipped.",
    "floor_patience": "After how many skipped steps at_floor acts.",
    "floor": "A lower bound of the scale.",
    "ceiling": "An upper bound of the scale.",
    "growth_factor": "A factor for growth, in place of the multiplier.",
    "backoff_factor": "A factor for overflows, in place of the multiplier.",
    "hysteresis": "How many overflows are forgiven, as in Megatron-LM.",
    "tolerance": "Which share of overflows is forgiven, as in fairseq.",
    "center": "What workers share, where no graph has shared variables.",
    "commit": "What a worker pushes: the accumulated gradient or the difference.",
    "error_if_nonfinite": "Raise an error where the norm is not finite.",
    "use_norm": "Without it, the norm of the tensors is taken.",
    "losses": "Penalties to add up, where no graph has a collection of them.",
    "recorder": "Takes the summaries, where no graph has a collection of them.",
    "names": "Names of parameters, which PyTorch's tensors do not have.",
    "in_place": "Write into the gradients instead of returning new ones.",
    "reduction": "Averages over ranks in place of Horovod.",
}
"""Argument -> why it differs from the original."""


@dataclass(frozen=True)
class Argument:
    """An argument of a tool, with its default in the original and on each backend.

    A default is source code, ``required``, or None if the argument does not exist.
    """

    tool: str
    name: str
    original: str | None
    backends: Mapping[str, str | None]

    @property
    def differs(self) -> bool:
        """Whether any backend differs from the original in this argument."""
        return any(not _same(own, self.original) for own in self.backends.values())


def arguments() -> list[Argument]:
    """Return the arguments of each tool: the original's, then the backends' own."""
    recorded, rows = json.loads(RECORDED.read_text("utf-8")), list[Argument]()
    for tool, text in SIGNATURES.items():
        original = parameters(f"({text})")
        own = {b: parameters(recorded[b]["default"][tool]) for b in BACKENDS}
        names = dict.fromkeys(
            [*original, *(name for of in own.values() for name in of)]
        )
        for name in names:
            defaults = {backend: of.get(name) for backend, of in own.items()}
            rows.append(Argument(tool, name, original.get(name), defaults))
    return rows


def parameters(signature: str) -> dict[str, str]:
    """Return argument -> default of a signature, as source code.

    Example:
        >>> parameters("class(a, b: 'int' = 1, **c) -> 'None'")
        {'a': 'required', 'b': '1', 'c': 'required'}
    """
    named = re.sub(r"<class '(\w+)'>", r"'\1'", signature)
    own = re.sub(r", a [\w.]+$", "", named[named.index("(") :])
    text = own.partition(") ->")[0].removesuffix(")")
    [function] = ast.parse(f"def signature{text}): ...").body
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    places = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(places) - len(arguments.defaults))
    pairs = [*zip(places, [*missing, *arguments.defaults], strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    pairs += [(rest, None) for rest in (arguments.vararg, arguments.kwarg) if rest]
    return {a.arg: REQUIRED if d is None else ast.unparse(d) for a, d in pairs}


def names_insert() -> str:
    """Return a sentence with the counts, and the table of all arguments."""
    rows = arguments()
    return render(
        "names.md.jinja",
        tools=len({row.tool for row in rows}),
        originals=sum(row.original is not None for row in rows),
        changed=sum(row.original is not None and row.differs for row in rows),
        added=sum(row.original is None for row in rows),
        table=table(
            "Arguments and their defaults",
            ["Argument", "Original", *BACKENDS, "Difference"],
            [_row(row) for row in rows],
            filtered=True,
            style=CARDS,
        ),
    )


def _row(row: Argument) -> list[Cell]:
    return [
        Cell(row.name, row.name, "code", (row.tool, _source(row.tool))),
        Cell(row.original or ABSENT, row.original or "", "code"),
        *(_default(own, row.original) for own in row.backends.values()),
        Cell(REASONS[row.name] if row.differs else "", style="wrap"),
    ]


def _default(own: str | None, original: str | None) -> Cell:
    """Return the cell of a backend's default: ``=`` if it equals the original's."""
    if own is None:
        return Cell(ABSENT, "", "none")
    return Cell("=", "=", "none") if _same(own, original) else Cell(own, own, "code")


def _same(one: str | None, other: str | None) -> bool:
    """Whether two defaults are equal; 32768 equals 32768.0, a dtype equals its name."""
    return _value(one) == _value(other)


def _value(code: str | None) -> object:
    try:
        return None if code is None else (ast.literal_eval(code),)
    except ValueError:
        return (code,)


def _source(tool: str) -> str:
    """Return where the original was: in TensorFlow if the docstring says so."""
    told = attrgetter(tool)(reference).__doc__ or ""
    named = re.search(rf"``(tf\.[\w.]+)\.{tool}``", told)
    return named[1] if named else "OpenSeq2Seq"
