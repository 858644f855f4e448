"""Row clipping: after each step, hold the norms of a parameter's rows to a limit."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep import errors
from lockstep.checks import CHOOSE, LEAST_SCALE, number_of, require
from lockstep.interface import NO_GRADIENTS, NO_STEP, StepReport
from lockstep.pipeline import has_layer
from lockstep.pytorch import shards
from lockstep.pytorch.foreach import rounded
from lockstep.pytorch.gradients import name_in, named_parameters
from lockstep.pytorch.wrapper import OptimizerWrapper, require_optimizer

OWNER = "VariableClippingOptimizer"
DIMS = f"{OWNER}: vars_to_clip_dims"

# For smaller limits, squares may have left the range of float32.
TINY = 1e-15
# So many elements, with float64 copies of them, fit into a core's cache.
BLOCK = 1 << 16


class RowLimit(NamedTuple):
    """The axes of one parameter, and the largest norm over them."""

    axes: tuple[int, ...]
    max_norm: float


class Clipped(NamedTuple):
    """Which norms of one parameter a step found too large; None if no norm was."""

    indices: Tensor | None
    shape: torch.Size
    too_large: Tensor | None


def clip_rows(table: Tensor, indices: Tensor | None, limit: RowLimit) -> Clipped:
    """Clip a table, or its rows ``indices`` [k], in place.

    On the CPU, only rows above the limit are computed and written. To select them on a
    GPU would need a host sync.
    """
    axes, max_norm = limit
    rows, places = table, indices
    if indices is not None:
        rows = table.index_select(0, indices)
    elif rows.is_cpu and axes and rows.is_floating_point() and rows.itemsize <= 4:
        quick = torch.linalg.vector_norm(rows, 2, axes, True, dtype=torch.float32)
        # Up to 2^18 elements the error of a norm is below 1 %, unless squares have left
        # the range of float32: then it is infinite, or the limit must be tiny.
        is_exact = 0 < rows.numel() <= quick.numel() << 18 and max_norm > TINY
        if is_exact and quick.max().item() < 0.99 * max_norm:
            return Clipped(None, quick.shape, None)
    norms, largest = row_norms(rows, axes), rounded(max_norm, wide_dtype(rows))
    too_large = (norms <= largest).logical_not_()  # NaN counts as too large.
    if rows.is_cpu:
        count = int(too_large.count_nonzero())
        if not count:
            return Clipped(indices, too_large.shape, None)
        # The order of a sum, so its last bit, may depend on the strides of a table.
        is_separate = rows.dim() and 0 not in axes and rows.is_contiguous()
        if is_separate and 2 * count <= len(rows):
            long = too_large.nonzero()[:, 0]
            rows, norms = rows.index_select(0, long), norms.index_select(0, long)
            places = long if indices is None else indices.index_select(0, long)
    clipped = shortened(rows, norms, axes, largest)
    if places is None:
        table.copy_(clipped)
    else:
        table.index_copy_(0, places, clipped)
    return Clipped(indices, too_large.shape, too_large)


def shortened(
    rows: Tensor, norms: Tensor, axes: Sequence[int], largest: float
) -> Tensor:
    """Return w min(largest / n, 1), with norms of at most ``largest``."""
    wide = wide_dtype(rows)
    # 1 where the norm is not too large, and NaN where it is NaN.
    factors = norms.reciprocal().mul_(largest).clamp_(max=1.0)
    clipped = torch.empty_like(rows)
    torch.mul(rows, factors.to(wide), out=clipped)
    above = row_norms(clipped, axes) > largest
    # On a GPU this check would be a host sync.
    if above.is_cpu and not above.any():
        return clipped
    # The factor and the product are rounded to float32 or to the dtype itself, half
    # precision is rounded once more, and the norm in float64 has an error.
    half = torch.finfo(rows.dtype).eps / 2 if rows.itemsize < 4 else 0.0
    margin = half + torch.finfo(wide).eps + 2.0**-50
    factors = torch.where(above, factors * (1 - margin), factors)
    return torch.mul(rows, factors.to(wide), out=clipped)


def wide_dtype(rows: Tensor) -> torch.dtype:
    """Return the real dtype in which rows are clipped: at least float32."""
    return torch.promote_types(rows.dtype.to_real(), torch.float32)


def row_norms(rows: Tensor, axes: Sequence[int]) -> Tensor:
    """Return sqrt(sum over axes of abs(w)^2) in float64; ``axes`` keep length 1."""
    if not axes:  # For vector_norm, this would mean all of them.
        return rows.abs().double()
    wide = torch.promote_types(rows.dtype, torch.float64)
    size = rows.numel()
    blocks: Sequence[Tensor] = [rows]
    if rows.is_cpu and size > BLOCK and min(axes) > 0:
        blocks = rows.split(max(BLOCK * len(rows) // size, 1))
    norms = [
        torch.linalg.vector_norm(block, 2, axes, True, dtype=wide) for block in blocks
    ]
    return norms[0] if len(norms) == 1 else torch.cat(norms)


class VariableClippingOptimizer(OptimizerWrapper):
    """After each step, hold the norm of a parameter's rows to a limit.

    For each parameter w that is listed and has a gradient: after ``opt`` has updated
    it, n = sqrt(sum over its axes of w^2), and where n > max_norm, w = w max_norm / n.
    Rows with a norm up to max_norm keep their bits. After a sparse gradient, only its
    rows are read and written, even if ``opt`` updates others, unless the norm is over
    axis 0.

    With a sparse gradient, the cost grows with the batch and not with the table.
    Clipping runs after the step and outside of autograd, so a forward pass may use a
    table several times. A parameter with a gradient of zeros is clipped too, but one
    whose gradient is None is not. ``last_step`` reports what a step did.

    Args:
        opt: any torch optimizer, a wrapper included. If it was made from
            ``named_parameters``, the keys of ``vars_to_clip_dims`` may be names.
        vars_to_clip_dims: parameter -> list or tuple of axes over which the norm is
            computed: [1] for the rows of a matrix, [] for its elements. A parameter
            that is not listed is never clipped.
        max_norm: the largest norm that is not clipped, > 0 and finite; or a mapping
            from the keys of ``vars_to_clip_dims`` to such norms.
        use_locking: without effect.
        colocate_clip_ops_with_vars: without effect.
        name: the name that ``get_name`` returns.

    Raises:
        NotAnOptimizerError: a TypeError; ``opt`` is no optimizer of torch.
        AxesError: a TypeError; the axes of a parameter are no list of integers.
        OutOfRangeError: a ValueError; ``max_norm``, an empty name, an axis that a
            parameter does not have.
        ValueError: a listed parameter is in no group, ``opt`` trains it through a
            master, or ``opt`` calls its closure several times a step (LBFGS).

    Cost: one read and one write of the rows that the gradient names. A norm over axis 0
    needs all rows, so the whole parameter is read; a sparse gradient then causes a
    warning.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.VariableClippingOptimizer``. Unlike
    ``torch.nn.Embedding(max_norm=...)`` it changes nothing in the forward pass.

    Example:
        >>> table = torch.nn.Embedding(3, 2, sparse=True)
        >>> _ = torch.nn.init.constant_(table.weight, 4.0)
        >>> sgd = torch.optim.SGD(table.named_parameters(), lr=1.0)
        >>> optimizer = VariableClippingOptimizer(sgd, {"weight": [1]}, max_norm=2.5)
        >>> (table(torch.tensor([1, 1])) * torch.tensor([0.5, 0.0])).sum().backward()
        >>> optimizer.step()
        >>> table.weight.tolist()
        [[4.0, 4.0], [1.5, 2.0], [4.0, 4.0]]
        >>> optimizer.last_step.reason
        'every gradient was present; 1 of 1 rows clipped'
    """

    _divides_inside = True

    _report: StepReport | None = NO_STEP
    """The last step's report; None if it must be made of the next three."""
    _count = 0
    _absent: Sequence[Tensor] = ()
    _clipped: Sequence[Clipped] = ()

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Tensor | str, Iterable[int]],
        max_norm: float | Mapping[Tensor | str, float],
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        require_optimizer(OWNER, opt, errors.NotAnOptimizerError)
        if has_layer(opt, "AGNOptimizer"):
            raise errors.UnsupportedError(
                f"{OWNER}: expected an optimizer of the listed parameters alone, got "
                "AGNOptimizer; put the row clipping inside of it, so that it clips the "
                "shared rows too."
            )
        require(OWNER, "name", name, isinstance(name, str) and name != "", "a name")
        if not isinstance(vars_to_clip_dims, Mapping):
            raise errors.AxesError(
                f"{DIMS}: expected a dict {{parameter: axes}}, got "
                f"{type(vars_to_clip_dims).__name__}; "
                "for one matrix w whose rows are to be clipped give {w: [1]}."
            )
        if getattr(opt, "masters", None):
            raise errors.UnsupportedError(
                f"{OWNER}: expected an optimizer of the weights themselves, got one "
                "that trains float32 masters; put the row clipping inside, as in "
                "MixedPrecisionOptimizerWrapper(VariableClippingOptimizer(...))."
            )
        is_mapping = isinstance(max_norm, Mapping)
        for norm in max_norm.values() if is_mapping else [max_norm]:
            fine = LEAST_SCALE <= number_of(norm) < math.inf  # float32 rounds less to 0
            require(OWNER, "max_norm", norm, fine, "a finite number > 0", CHOOSE)
        norms = max_norm if is_mapping else dict.fromkeys(vars_to_clip_dims, max_norm)
        if set(norms) != set(vars_to_clip_dims):
            raise errors.UnknownNameError(
                f"{OWNER}: max_norm: expected one norm for each key of "
                "vars_to_clip_dims, got other keys; give both mappings the same keys."
            )
        names = named_parameters(opt)
        limits: dict[Tensor, RowLimit] = {}
        for key, dims in vars_to_clip_dims.items():
            parameter, norm = parameter_of(key, names), norms[key]
            if parameter in limits:
                raise errors.UnsupportedError(
                    f"{DIMS}: expected each parameter once, got "
                    f"{names[parameter]!r} twice; leave one of the two out."
                )
            axes = axes_of(names[parameter], dims, parameter)
            limits[parameter] = RowLimit(axes, norm)
        super().__init__(opt)
        self.limits = limits
        self.name = name

    def step_inner(self) -> None:
        """Take the step of the wrapped optimizer, then clip."""
        inner = self.inner_optimizer
        parameters = [p for group in inner.param_groups for p in group["params"]]
        present = [p for p in parameters if p.grad is not None]
        absent: list[Tensor] = []
        if len(present) < len(parameters):
            # Frozen parameters are not reported as absent. They may be trained later.
            absent = [p for p in parameters if p.grad is None and p.requires_grad]
        known = set(map(id, present))
        touched = [(p, p.grad) for p in self.limits if id(p) in known]
        if self._only_wants_state(present):
            touched = []
        inner.step()
        self._clipped = [self._clip(p, gradient) for p, gradient in touched]
        self._count, self._absent = len(parameters), absent
        self._report = None if present else NO_GRADIENTS

    def _clip(self, parameter: Tensor, gradient: Tensor) -> Clipped:
        """Clip a parameter, or the rows of its gradient, outside of autograd."""
        limit, indices = self.limits[parameter], None
        if gradient.is_sparse and gradient.sparse_dim():
            indices = gradient._indices()[0]  # With duplicates.
            if 0 in limit.axes:
                name = name_in(named_parameters(self), parameter)
                errors.warn_user(
                    f"{OWNER}: expected axes without dimension 0, got a sparse gradient"
                    f" for {name!r}, clipped over {list(limit.axes)}; the norm runs "
                    "over all rows, so the whole variable is read and clipped."
                )
                indices = None
        return clip_rows(shards.part_of(parameter).detach(), indices, limit)

    def note_no_gradients(self) -> None:
        self._report, self._clipped = NO_GRADIENTS, ()
        super().note_no_gradients()

    @property
    def last_step(self) -> StepReport:
        """The report of the last step. Reading it costs a host sync."""
        if self._report is not None:
            return self._report
        rows, clipped = self._counts()
        ending = f"{clipped} of {rows} rows clipped"
        inner = getattr(self.inner_optimizer, "last_step", None)
        if inner is not None:  # It is more precise about updates.
            return inner._replace(reason=f"{inner.reason}; {ending}")
        names = named_parameters(self)
        skipped = tuple(name_in(names, p) for p in self._absent)
        updated = f"of {self._count} gradients {len(skipped)} absent"
        updated = updated if skipped else "every gradient was present"
        return StepReport(True, f"{updated}; {ending}", skipped)

    def _counts(self) -> tuple[int, int]:
        """Return how many norms the last step computed, and how many it clipped."""
        counts = [counted(clipped) for clipped in self._clipped]
        return sum(rows for rows, _ in counts), sum(n for _, n in counts)

    def step_numbers(self) -> dict[str, float]:
        """Return the numbers of the last step, and its rows: see the base class."""
        rows, clipped = self._counts()
        return {**super().step_numbers(), "rows": rows, "clipped_rows": clipped}

    def get_name(self) -> str:
        """Return the constructor's ``name``."""
        return self.name


def counted(clipped: Clipped) -> tuple[int, int]:
    """Return how many norms were computed and how many too large, each row once."""
    indices, shape, too_large = clipped
    if indices is not None:
        rows, place = indices.unique(return_inverse=True)
        shape = torch.Size([len(rows), *shape[1:]])
        if too_large is not None:
            too_large = too_large.new_zeros(shape).index_copy_(0, place, too_large)
    return shape.numel(), 0 if too_large is None else int(too_large.sum())


def parameter_of(key: Any, names: Mapping[Tensor, str]) -> Tensor:
    """Return the parameter for a key of ``vars_to_clip_dims``, or raise."""
    if isinstance(key, str):
        named = [parameter for parameter, name in names.items() if name == key]
        if not named:
            raise errors.unknown_name(DIMS, key, list(names.values()))
        if len(named) > 1:
            raise errors.UnknownNameError(
                f"{DIMS}: expected one parameter of each name, got {len(named)} called "
                f"{key!r}; use the parameters themselves as keys."
            )
        return named[0]
    if not isinstance(key, Tensor) or key not in names:
        # No elements: to print them would wait for a GPU.
        got = f"one of shape {list(key.shape)}" if isinstance(key, Tensor) else f"{key}"
        raise errors.UnknownNameError(
            f"{DIMS}: expected parameters that the optimizer updates, or their names, "
            f"as keys, got {got}; list those that are in its groups."
        )
    return key


def axes_of(name: str, dims: Any, parameter: Tensor) -> tuple[int, ...]:
    """Return the axes of one parameter, nonnegative and ascending, or raise."""
    try:
        listed = tuple(dims)
        if isinstance(dims, str | bytes | Mapping) or bool in map(type, listed):
            raise TypeError
        axes = [operator.index(axis) for axis in listed]
    except TypeError:
        raise errors.AxesError(
            f"{DIMS}: expected a list of axes for {name!r}, got {dims!r}; "
            "give [1] for the rows of a matrix."
        ) from None
    rank = parameter.dim()
    fine = all(-rank <= axis < rank for axis in axes)
    resolved = sorted({axis % rank for axis in axes}) if fine else []
    fine = fine and len(resolved) == len(axes)
    expected = f"axes below {rank}, each once"
    require(OWNER, f"axes of {name!r}", axes, fine, expected, CHOOSE)
    # Otherwise a norm would need the parts of several ranks.
    placements = parameter.placements if shards.are_among([parameter]) else ()
    split = {p.dim for p in placements if not p.is_replicate()} & {*resolved}
    if split:
        raise errors.UnsupportedError(
            f"{OWNER}: expected the axes {resolved} of {name!r} whole on each rank, "
            f"got a DTensor that is split along {sorted(split)}; "
            "split it along other axes, or not at all."
        )
    return tuple(resolved)
