"""The settings of ``optimize_loss``: its plain arguments and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from lockstep.checks import FLOATS, dtype_name, number_of
from lockstep.errors import unknown_name, with_article
from lockstep.messages.clipping import larc
from lockstep.messages.clipping import refusals as clipping_refusals
from lockstep.messages.clipping.clip_by_global_norm import check_limit
from lockstep.messages.masters import mixed_precision
from lockstep.messages.masters import refusals as masters_refusals
from lockstep.messages.scaling.automatic_scaler import algorithm_name
from lockstep.messages.step import refusals
from lockstep.messages.step.training_step import OWNER
from lockstep.pipeline import in_order, stages_of, strictly_ordered
from lockstep.quirks import Quirks, quirks_of

__all__ = [
    "DTYPES",
    "Settings",
    "check_stack",
]

DTYPES = ("float32", "float16", "mixed")


@dataclass(frozen=True)
class Settings:
    """The arguments of one call that are plain values, checked.

    Attributes:
        dtype: "mixed": half-precision variables have float32 masters, and the loss is
            scaled; otherwise the loss is not scaled.
        clip_gradients: the largest global norm, > 0; None: no clipping.
        larc_params: parameters of LARC; None: no LARC. Not together with
            ``clip_gradients``.
        loss_scaling: a number, the name of a scaler, or a scale object of the backend;
            any other value than 1 needs the dtype "mixed".
        loss_scaling_params: parameters of the named scaler; refused without one.
        on_horovod: average the gradients over the ranks, if there are several.
        iter_size: micro-batches in a step, >= 1.
        has_flag: whether ``skip_update_ph`` was given.
        strict: as in OpenSeq2Seq: ``iter_size`` without ``on_horovod`` is ignored, and
            with it needs ``skip_update_ph``; only names are checked.

    Raises:
        ClipAndLarcError: both clipping and LARC were requested.
        UnknownNameError: a dtype or a scaler that does not exist.
        OutOfRangeError: a number out of range.
        UnusableScaleError: strict: a loss scale that is no float, with "mixed".
        UnsupportedError: parameters of a scaler without a named scaler; a loss scale
            without effect; strict: accumulation without ``skip_update_ph``.
    """

    dtype: Any = "float32"
    clip_gradients: float | None = None
    larc_params: Mapping[str, Any] | None = None
    loss_scaling: Any = 1.0
    loss_scaling_params: Mapping[str, Any] | None = None
    on_horovod: bool = False
    iter_size: int = 1
    has_flag: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        if self.clip_gradients is not None and self.larc_params is not None:
            raise clipping_refusals.CLIP_AND_LARC.error()
        self.larc_policy  # noqa: B018
        if self.scaler_name is not None:
            algorithm_name(self.scaler_name)
        quirks = self.quirks
        if not quirks.arguments_unchecked:
            self._check()
        if not quirks.optimize_loss_scaler:
            self._check_effect()
        if quirks.optimize_loss_flag and self.accumulates and not self.has_flag:
            raise refusals.NO_FLAG.error()
        if quirks.masters_scale_type and self.mixed and self.scaler_name is None:
            self._check_scale()

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments; values computed from them are not pickled."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def quirks(self) -> Quirks:
        """The quirks of the original that are on."""
        return quirks_of(self.strict)

    @cached_property
    def larc_policy(self) -> larc.LarcPolicy | None:
        """The checked parameters of LARC, or None without LARC."""
        params = self.larc_params
        return None if params is None else larc.larc_policy(params, self.strict)

    def _check(self) -> None:
        check_dtype(dtype_name(self.dtype))
        if self.clip_gradients is not None:
            check_limit(OWNER, "clip_gradients", self.clip_gradients)
        if isinstance(self.on_horovod, str | float):
            raise refusals.BAD_ON_HOROVOD.error(got=self.on_horovod)
        size = self.iter_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise refusals.BAD_ITER_SIZE.error(got=size)
        if self.mixed and isinstance(self.loss_scaling, int | float):
            mixed_precision.scale_number(self.loss_scaling)

    def _check_effect(self) -> None:
        """Raise for arguments without effect. Quirk ``optimize_loss_scaler``."""
        scaling, params = self.loss_scaling, self.loss_scaling_params
        if not self.mixed and number_of(scaling) != 1:
            kind = shown_value(scaling, int | float | str)
            dtype = dtype_name(self.dtype)
            raise refusals.WITHOUT_EFFECT.error(kind=kind, dtype=dtype)
        if isinstance(params, Mapping) and params and self.scaler_name is None:
            kind = shown_value(scaling, int | float)
            names = ", ".join(map(repr, params))
            raise refusals.WITHOUT_SCALER.error(named=names, kind=kind)

    def _check_scale(self) -> None:
        """Raise for a number that the original accepts but cannot use."""
        number = isinstance(self.loss_scaling, int) or hasattr(
            self.loss_scaling, "dtype"
        )
        if number and mixed_precision.scale_number(self.loss_scaling, True) is None:
            raise masters_refusals.UNUSABLE.error(loss_scale=self.loss_scaling)

    @property
    def mixed(self) -> bool:
        """Whether half-precision variables have masters and the loss is scaled."""
        return isinstance(self.dtype, str) and self.dtype == "mixed"

    @property
    def scaler_name(self) -> str | None:
        """The name of the automatic scaler; None if the loss scale is no name."""
        return self.loss_scaling if isinstance(self.loss_scaling, str) else None

    @property
    def makes_scaler(self) -> bool:
        """Whether a named scaler is to be created."""
        for_any_dtype = self.quirks.optimize_loss_scaler
        return self.scaler_name is not None and (self.mixed or for_any_dtype)

    def summarized_scale(self, optimizer: Any, scaler: Any) -> Any:
        """Return the object whose ``loss_scale`` is recorded, or None.

        Strict: only a scaler by name, with any dtype.
        """
        if self.quirks.optimize_loss_scale_summary:
            return scaler
        return optimizer if "unscale" in self.pipeline(optimizer) else None

    @cached_property
    def accumulates(self) -> bool:
        """Whether gradients are accumulated; strict: only with ``on_horovod``."""
        anywhere = not self.quirks.optimize_loss_iter_size
        return self.iter_size > 1 and (self.on_horovod or anywhere)

    def pipeline(self, optimizer: Any) -> tuple[str, ...]:
        """Return the stages that are active with this optimizer, in order."""
        own = {
            "accumulate": self.accumulates,
            "reduce": self.on_horovod,
            "norm": self.clip_gradients is not None,
            "clip": self.clip_gradients is not None,
            "larc": self.larc_params is not None,
            "update": True,
        }
        active = [*stages_of(optimizer), *(name for name in own if own[name])]
        stages = in_order(active)
        late = self.quirks.optimize_loss_order
        return strictly_ordered(stages) if late else stages


def check_dtype(name: str) -> None:
    """Raise for a dtype that the original does not know."""
    if name in DTYPES:
        return
    if name not in FLOATS:
        raise unknown_name(f"{OWNER}: dtype", name, DTYPES)
    remedy = "leave it out, for gradients keep the dtypes of their variables"
    if name == "bfloat16":
        remedy = "pass dtype='mixed', which trains it through float32 masters"
    raise refusals.UNKNOWN_DTYPE.error(got=name, remedy=remedy)


def check_stack(settings: Settings, optimizer: Any) -> None:
    """Raise if LARC is used with a stack that clips; strict: check nothing."""
    checked = not settings.quirks.arguments_unchecked
    clips = checked and "clip" in stages_of(optimizer)
    if clips and settings.larc_params is not None:
        raise clipping_refusals.CLIP_AND_LARC.error()


def shown_value(value: object, kinds: Any) -> str:
    """Return the repr of a value of these classes, or else the name of its class."""
    return (
        repr(value) if isinstance(value, kinds) else with_article(type(value).__name__)
    )
