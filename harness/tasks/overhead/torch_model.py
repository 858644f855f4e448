"""The benchmarks in PyTorch. A step returns when the device has finished it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from harness.tasks import own
from harness.tasks.overhead import shapes
from harness.tasks.overhead.shapes import ADAM_RATE, CLIP, LIMIT, LOSS_SCALE
from harness.tasks.overhead.shapes import MASTERS_SCALE as SCALE
from harness.timing import Makers, Prepared, Step
from lockstep import pytorch as lockstep
from lockstep.pytorch.variable_clipping import RowLimit, clip_rows

Variant = Callable[[list[Tensor]], Step]
"""Builds a step on weights with gradients."""

# -- what benchmarks share -------------------------------------------------------------


def parameters(model: str, device: str, dtype: torch.dtype) -> list[Tensor]:
    """Return the parameters of a model, without gradients."""
    return [
        torch.nn.Parameter(torch.tensor(value, dtype=dtype, device=device))
        for value in shapes.arrays(model, seed=0)
    ]


class Gradients:
    """The gradients of a model, which can be restored before every step.

    Fused optimizers write unscaled and clipped gradients back into ``grad``, so a
    second step would have nothing to clip.
    """

    def __init__(
        self,
        model: str,
        scale: float,
        device: str,
        dtype: torch.dtype,
        zeros: str = "none",
    ) -> None:
        drawn = shapes.gradients(model, scale, zeros)
        self.values = [torch.tensor(value).to(device, dtype) for value in drawn]

    def fill(self, parameters: list[Tensor]) -> None:
        """Copy the gradients into the parameters' gradients, in place."""
        for parameter, value in zip(parameters, self.values, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(value)
            parameter.grad.copy_(value)


def finished(step: Step, device: str) -> Step:
    """Return ``step``, followed by a wait for an asynchronous device."""
    if not device.startswith("cuda"):
        return step

    def and_wait() -> None:
        step()
        torch.cuda.synchronize(device)

    return and_wait


def on_weights(
    variants: Mapping[str, Variant],
    model: str,
    device: str,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
    zeros: str = "none",
    refill: bool = True,
) -> Makers:
    """Return the builder of each variant, with its own weights.

    With ``refill``, gradients are restored before each step; this is not timed.
    """
    torch.set_num_threads(1)
    gradients = Gradients(model, scale, device, dtype, zeros)

    def make(variant: Variant) -> Step:
        weights = parameters(model, device, dtype)
        gradients.fill(weights)
        step = variant(weights)
        before, timed = (
            (step.prepare, step.step) if isinstance(step, Prepared) else (None, step)
        )
        if not refill:
            return finished(timed, device)

        def prepare() -> None:
            if before is not None:
                before()
            gradients.fill(weights)

        return Prepared(finished(prepare, device), finished(timed, device))

    return {name: partial(make, variant) for name, variant in variants.items()}


def adam(weights: list[Tensor], fused: bool | None = True) -> torch.optim.Adam:
    """Return torch's Adam; ``fused`` is None for torch's own choice."""
    return torch.optim.Adam(weights, lr=ADAM_RATE, fused=fused)


def step_of(optimizer: Any, weights: list[Tensor]) -> Step:
    """Return an optimizer's step, after a backward pass if it scales losses."""
    if not hasattr(optimizer, "scale_loss"):
        step: Step = optimizer.step
        return step
    loss = weights[0].new_ones((), requires_grad=True)

    def backward() -> None:
        optimizer.zero_grad()
        optimizer.scale_loss(loss).backward()

    return Prepared(backward, optimizer.step)


# -- the multitask wrapper -------------------------------------------------------------


def multitask_overhead(seed: int, device: str, model: str, zeros: str) -> Makers:
    """Steps of fused Adam: ``ours``, ``bare``, ``loop``."""
    variants: dict[str, Variant] = {
        "ours": lambda w: lockstep.MultitaskOptimizerWrapper(adam(w)).step,
        "bare": lambda w: adam(w).step,
        "loop": multitask_loop,
    }
    return on_weights(variants, model, device, zeros=zeros, refill=False)


def multitask_loop(weights: list[Tensor]) -> Step:
    """Return the naive loop, with a count and a device sync for each tensor."""
    optimizer = adam(weights)

    def step() -> None:
        hidden = []
        for parameter in weights:
            if parameter.grad.count_nonzero().item() == 0:
                hidden.append((parameter, parameter.grad))
                parameter.grad = None
        optimizer.step()
        for parameter, gradient in hidden:
            parameter.grad = gradient

    return step


# -- loss scaling ----------------------------------------------------------------------

UPDATES = 100
"""The updates of one timing, because one is hardly longer than a clock reading."""


def loss_scaling_overhead(seed: int, device: str, part: str, **what: str) -> Makers:
    """Scaled and clipped steps of a ``model``, or updates of a ``scaler``.

    Steps: ``ours``, ``fixed`` (ours with a constant scale), ``same`` (``GradScaler``
    and the same fused Adam), ``usual`` (with default Adam), ``bare`` (neither scaled
    nor clipped). Updates: ``ours``, ``gradscaler``.
    """
    if part == "update":
        peer = partial(gradscaler_updates, device)
        return {"ours": partial(our_updates, **what), "gradscaler": peer}
    variants: dict[str, Variant] = {
        "ours": partial(scaled, lockstep.DynamicLossScale),
        "fixed": partial(scaled, lockstep.FixedLossScale),
        "same": partial(gradscaler, fused=True),
        "usual": partial(gradscaler, fused=None),
        "bare": lambda weights: adam(weights).step,
    }
    return on_weights(variants, device=device, scale=LOSS_SCALE, **what)


def scaled(scale: Callable[[float], Any], weights: list[Tensor]) -> Step:
    """Return a scaled and clipped step of our wrapper around fused Adam."""
    wrapper = lockstep.MixedPrecisionLossScaleOptimizer
    optimizer = wrapper(adam(weights), scale(LOSS_SCALE), clip_norm=CLIP)
    return step_of(optimizer, weights)


def gradscaler(weights: list[Tensor], fused: bool | None) -> Step:
    """Return a scaled and clipped step of ``GradScaler``."""
    optimizer = adam(weights, fused)
    scaler = torch.amp.GradScaler(weights[0].device.type, init_scale=LOSS_SCALE)
    loss = weights[0].new_ones(())

    def step() -> None:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        scaler.step(optimizer)
        scaler.update()

    return Prepared(lambda: scaler.scale(loss), step)


def our_updates(scaler: str) -> Step:
    """Return updates of one of our scalers after finite gradients."""
    if scaler == "dynamic":
        return repeated(partial(lockstep.DynamicLossScale(LOSS_SCALE).move, True))
    return repeated(partial(lockstep.AutomaticLossScaler(scaler).update_op, False, 1.0))


def repeated(update: Callable[[], object], count: int = UPDATES) -> Step:
    """Return a step that calls ``update`` ``count`` times."""

    def updates() -> None:
        for _ in range(count):
            update()

    return Prepared(lambda: None, updates, count)


def gradscaler_updates(device: str) -> Step:
    """Return a step of one update of each of ``UPDATES`` scalers.

    A scaler must check gradients before each update, so each update has its own scaler.
    """
    weight = torch.nn.Parameter(torch.ones(1, device=device))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    kind = torch.device(device).type
    scalers = [torch.amp.GradScaler(kind, init_scale=1.0) for _ in range(UPDATES)]

    def check() -> None:
        for scaler in scalers:
            scaler.scale(weight)
            scaler.unscale_(optimizer)

    def updates() -> None:
        for scaler in scalers:
            scaler.update()

    return Prepared(finished(check, device), finished(updates, device), UPDATES)


# -- masters ---------------------------------------------------------------------------


def masters_overhead(seed: int, device: str, model: str) -> Makers:
    """Steps of fused Adam on float16 weights with masters: ``ours``, ``loop``."""

    def ours(weights: list[Tensor]) -> Step:
        wrapper = lockstep.MixedPrecisionOptimizerWrapper
        return step_of(wrapper(adam(weights), SCALE, clip_norm=CLIP), weights)

    variants = {"ours": ours, "loop": masters_loop}
    return on_weights(variants, model, device, SCALE, torch.float16)


def masters_loop(weights: list[Tensor]) -> Step:
    """Return the naive loop, which copies each tensor to its master and back."""
    masters = [torch.nn.Parameter(weight.detach().float()) for weight in weights]
    optimizer = adam(masters)

    @torch.no_grad()
    def step() -> None:
        for weight, master in zip(weights, masters, strict=True):
            master.grad = weight.grad.float().mul_(1 / SCALE)
        torch.nn.utils.clip_grad_norm_(masters, CLIP)
        optimizer.step()
        for weight, master in zip(weights, masters, strict=True):
            weight.copy_(master)

    return step


# -- LARC ------------------------------------------------------------------------------


def larc_overhead(seed: int, device: str, model: str) -> Makers:
    """LARC in place, between the backward pass and the step: ``ours``, ``loop``."""
    return on_weights({"ours": our_larc, "loop": larc_loop}, model, device)


def our_larc(weights: list[Tensor]) -> Step:
    """Return a step of ``post_process_gradients``."""
    process, larc = lockstep.post_process_gradients, shapes.LARC

    def step() -> None:
        pairs = [(weight.grad, weight) for weight in weights]
        process(pairs, [], shapes.LARC_RATE, None, larc, in_place=True)

    return step


def larc_loop(weights: list[Tensor], weight_decay: float = 0.0) -> Step:
    """Return the loop of the known LARC wrapper, with a weight decay of 0."""
    eta, epsilon = shapes.LARC.values()

    @torch.no_grad()
    def step() -> None:
        for weight in weights:
            weight_norm, gradient_norm = weight.norm(), weight.grad.norm()
            if weight_norm != 0 and gradient_norm != 0:
                decayed = gradient_norm + weight_norm * weight_decay + epsilon
                rate = min(eta * weight_norm / decayed / shapes.LARC_RATE, 1)
                weight.grad += weight_decay * weight
                weight.grad *= rate

    return step


# -- NovoGrad --------------------------------------------------------------------------


def novograd_overhead(seed: int, device: str, model: str) -> Makers:
    """Steps of NovoGrad: ``ours``, ``loop``."""
    variants: dict[str, Variant] = {
        "ours": lambda weights: lockstep.NovoGrad(weights, lr=ADAM_RATE).step,
        "loop": novograd_loop,
    }
    return on_weights(variants, model, device, refill=False)


def novograd_loop(weights: list[Tensor]) -> Step:
    """Return the published rule as a loop, which updates one tensor after the other."""
    beta1, beta2, epsilon = shapes.NOVOGRAD.values()
    momenta = [torch.zeros_like(weight) for weight in weights]
    moments = [torch.zeros((), device=weight.device) for weight in weights]

    @torch.no_grad()
    def step() -> None:
        for weight, momentum, moment in zip(weights, momenta, moments, strict=True):
            square = weight.grad.square().sum()
            mixed = beta2 * moment + (1 - beta2) * square
            moment.copy_(torch.where(moment == 0, square, mixed))
            direction = weight.grad / torch.sqrt(moment + epsilon)
            momentum.mul_(beta1).add_(direction)
            weight.sub_(momentum, alpha=ADAM_RATE)

    return step


# -- small tensors ---------------------------------------------------------------------


def small_steps_overhead(seed: int, device: str, model: str, wrapper: str) -> Makers:
    """Steps of Adam: ``ours`` (wrapped), ``bare`` (fused), ``foreach``."""
    dtype = torch.float16 if wrapper == "masters" else torch.float32
    ours: dict[str, Variant] = {"ours": lambda w: step_of(WRAPPERS[wrapper](w), w)}
    peers: dict[str, Variant] = {
        "bare": lambda w: adam(w).step,
        "foreach": lambda w: torch.optim.Adam(w, lr=ADAM_RATE, foreach=True).step,
    }
    return {
        **on_weights(ours, model, device, SCALE, dtype),
        **on_weights(peers, model, device, SCALE),
    }


def own_optimizer(seed: int, device: str, model: str, file: str, text: str) -> Makers:
    """Steps of a user's optimizer (``ours``, ``yours``, ``wrapped``) and of Adam."""
    settings = {"file": file, "text": text, "learning_rate": ADAM_RATE}

    def made(weights: list[Tensor]) -> Any:
        return own.make(settings, weights, torch.optim.Optimizer)

    variants: dict[str, Variant] = {
        "ours": lambda w: step_of(made(w), w),
        "yours": lambda w: step_of(made(w), w),
        "wrapped": lambda w: step_of(lockstep.MultitaskOptimizerWrapper(made(w)), w),
        "adam": lambda w: adam(w).step,
    }
    return on_weights(variants, model, device)


def rows(weights: list[Tensor]) -> Any:
    """Return row clipping of the first tensor, as for an embedding among layers."""
    axes = {weights[0]: [1]}
    return lockstep.VariableClippingOptimizer(adam(weights), axes, LIMIT)


WRAPPERS: dict[str, Callable[[list[Tensor]], Any]] = {
    "multitask": lambda w: lockstep.MultitaskOptimizerWrapper(adam(w)),
    "rows": rows,
    "scaling": lambda w: lockstep.MixedPrecisionLossScaleOptimizer(adam(w), "dynamic"),
    "masters": lambda w: lockstep.MixedPrecisionOptimizerWrapper(adam(w), SCALE),
    "stacked": lambda w: lockstep.MixedPrecisionLossScaleOptimizer(
        lockstep.MultitaskOptimizerWrapper(rows(w)), "dynamic"
    ),
    "AdamOptimizer": lambda w: lockstep.AdamOptimizer(w, ADAM_RATE),
}


# -- a whole step in one call ----------------------------------------------------------

WIDTHS, BATCH = (64, 128, 128, 10), 32
Loss = Callable[[], Tensor]


def optimize_loss_overhead(seed: int, device: str, model: str) -> Makers:
    """Scale, backward, unscale, clip and fused Adam: ``ours``, ``hand``."""
    torch.set_num_threads(1)

    def make(step: Callable[[Loss, list[Tensor]], Step]) -> Step:
        return finished(step(*problem(model, device)), device)

    return {"ours": partial(make, in_one_call), "hand": partial(make, by_hand)}


def problem(model: str, device: str) -> tuple[Loss, list[Tensor]]:
    """Return the loss and parameters of a perceptron, or ones with fixed gradients."""
    if model == "MLP":
        return perceptron(device)
    weights = parameters(model, device, torch.float32)
    gradients = Gradients(model, 1.0, device, torch.float32).values
    return lambda: Given.apply(gradients, *weights), weights


def perceptron(device: str) -> tuple[Loss, list[Tensor]]:
    """Return the loss of a small perceptron on one batch, and its parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs, targets = torch.randn(BATCH, WIDTHS[0]), torch.randn(BATCH, WIDTHS[-1])
        layers: list[torch.nn.Module] = []
        for width, following in pairwise(WIDTHS):
            layers += [torch.nn.Linear(width, following), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers[:-1]).to(device)
    inputs, targets = inputs.to(device), targets.to(device)
    loss = torch.nn.functional.mse_loss
    return lambda: loss(model(inputs), targets), list(model.parameters())


class Given(torch.autograd.Function):
    """A loss of 0 with fixed gradients, at almost no cost."""

    @staticmethod
    def forward(ctx: Any, gradients: Sequence[Tensor], *weights: Tensor) -> Tensor:
        """Store the gradients; return 0."""
        ctx.gradients = gradients
        return weights[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> Any:
        """Return the gradients times the gradient of the loss."""
        return None, *torch._foreach_mul(ctx.gradients, scale)


def in_one_call(loss: Loss, weights: list[Tensor]) -> Step:
    """Return the step of ``optimize_loss``, with a fixed scale and clipping."""
    return lockstep.optimize_loss(
        loss,
        torch.optim.Adam,
        {"fused": True},
        lambda global_step: ADAM_RATE,
        var_list=weights,
        dtype="mixed",
        loss_scaling=SCALE,
        clip_gradients=CLIP,
    )


def by_hand(loss: Loss, weights: list[Tensor]) -> Step:
    """Return the loop in plain torch, which skips steps with non-finite gradients."""
    optimizer = adam(weights)

    def step() -> None:
        optimizer.zero_grad()
        (loss() * SCALE).backward()
        gradients = [weight.grad for weight in weights]
        torch._foreach_mul_(gradients, 1 / SCALE)
        norm = torch.nn.utils.clip_grad_norm_(weights, CLIP, foreach=True)
        if norm.isfinite():
            optimizer.step()

    return step


# -- learning rates --------------------------------------------------------------------

STEPS = 1024
"""The steps of one timing, within which ours computes this many rates in advance."""

TOTAL, WARM_UP = 1_000_000, 4000

POLICIES: dict[str, tuple[dict[str, Any], Callable[[int], float]]] = {
    "poly_decay": (
        {"decay_steps": TOTAL, "power": 2.0, "warmup_steps": WARM_UP},
        lambda step: min(1.0, step / WARM_UP) * (1 - min(step, TOTAL) / TOTAL) ** 2,
    ),
    "cosine_decay": (
        {"decay_steps": TOTAL, "warmup_steps": WARM_UP},
        lambda step: (
            min(1.0, step / WARM_UP)
            * (1 + math.cos(math.pi * min(step, TOTAL) / TOTAL))
            / 2
        ),
    ),
    "transformer_policy": (
        {"d_model": 512, "warmup_steps": WARM_UP},
        lambda step: 512**-0.5 * min((step + 1) * WARM_UP**-1.5, (step + 1) ** -0.5),
    ),
}
"""Policy -> its arguments, and the same as a factor of the rate for ``LambdaLR``."""


def learning_rate_overhead(seed: int, device: str, policy: str) -> Makers:
    """Blocks of steps that write a rate into two groups: ``ours``, ``lambda``."""
    torch.set_num_threads(1)

    def block(scheduler: Callable[[torch.optim.Optimizer], LRScheduler]) -> Step:
        optimizer = two_groups(device)
        step = scheduler(optimizer).step
        optimizer.step()  # A scheduler warns if none was taken before it.
        return repeated(step, STEPS)

    return {name: partial(block, kind) for name, kind in schedulers(policy).items()}


def schedulers(
    policy: str,
) -> dict[str, Callable[[torch.optim.Optimizer], LRScheduler]]:
    """Return our scheduler and torch's for a policy."""
    arguments, factor = POLICIES[policy]
    return {
        "ours": lambda sgd: lockstep.PolicyLR(sgd, policy, **arguments),
        "lambda": lambda sgd: LambdaLR(sgd, factor),
    }


def two_groups(device: str) -> torch.optim.SGD:
    weights = [torch.nn.Parameter(torch.ones(1, device=device)) for _ in range(2)]
    return torch.optim.SGD([{"params": [weight]} for weight in weights], lr=0.1)


# -- rows of a table -------------------------------------------------------------------


def row_clipping_overhead(seed: int, device: str, part: str, vocabulary: str) -> Makers:
    """Clipping the rows of a step, or whole sparse steps of SGD.

    ``part`` is ``clip``: ``ours``, ``forward``, ``dense`` and ``small``, which is ours
    on a small table. Or it is ``step``: ``ours`` and ``bare``. Before each step, and
    outside of its time, its rows are made too long again. So they are in the cache, as
    after the update of an optimizer.
    """
    torch.set_num_threads(1)
    table = Table(int(vocabulary), seed, device)
    weight, rows = table.weight, table.weight.detach()
    if part == "step":
        long = torch.full_like(table.long, 0.01)
        weight.grad = torch.sparse_coo_tensor(
            table.named[None], long, weight.shape, check_invariants=True
        )
        sgd = partial(torch.optim.SGD, [weight], lr=0.1)
        wrapper = lockstep.VariableClippingOptimizer
        return {
            "ours": lambda: table.prepared(wrapper(sgd(), {weight: [1]}, LIMIT).step),
            "bare": lambda: table.prepared(sgd().step),
        }
    embed = torch.nn.Embedding.from_pretrained(weight, freeze=False, max_norm=LIMIT)
    small = Table(shapes.SMALL, seed, device)
    return {
        "ours": partial(our_clip, table),
        "small": partial(our_clip, small),
        "forward": lambda: table.prepared(lambda: embed(table.named)),
        "dense": lambda: table.prepared(lambda: rows.renorm_(2, 0, LIMIT)),
    }


class Table:
    """A table of short rows, and the rows of a step."""

    def __init__(self, vocabulary: int, seed: int, device: str) -> None:
        rows = torch.full((vocabulary, shapes.WIDTH), shapes.SHORT, device=device)
        self.weight = torch.nn.Parameter(rows)
        named = shapes.named_rows(vocabulary, seed)
        self.named = torch.tensor(named, device=device)
        self.long = torch.full((len(named), shapes.WIDTH), shapes.LONG, device=device)
        self.device = device

    @torch.no_grad()
    def lengthen(self) -> None:
        """Increase the norms of the named rows beyond the limit."""
        self.weight.index_copy_(0, self.named, self.long)

    def prepared(self, step: Step) -> Step:
        """Return a step, preceded by :meth:`lengthen`, which is not timed."""
        device = self.device
        return Prepared(finished(self.lengthen, device), finished(step, device))


def our_clip(table: Table) -> Step:
    """Return the wrapper's clipping after a sparse step."""
    rows, limit = table.weight.detach(), RowLimit((1,), LIMIT)
    return table.prepared(lambda: clip_rows(rows, table.named, limit))
