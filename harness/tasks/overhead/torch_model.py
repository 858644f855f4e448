"""The benchmarks in PyTorch. A step returns when the device has finished it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

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
        nn.Parameter(torch.tensor(value, dtype=dtype, device=device))
        for value in shapes.arrays(model, seed=0)
    ]


def gradients(
    model: str, scale: float, device: str, dtype: torch.dtype, zeros: str = "none"
) -> list[Tensor]:
    """Return the gradients of a model times ``scale``."""
    drawn = shapes.gradients(model, scale, zeros)
    return [torch.tensor(value).to(device, dtype) for value in drawn]


def fill(parameters: list[Tensor], gradients: list[Tensor]) -> None:
    """Copy the gradients into the parameters' gradients, in place.

    Fused optimizers write unscaled and clipped gradients back into ``grad``, so without
    this a second step would have nothing to clip.
    """
    for parameter, value in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = torch.empty_like(value)
        parameter.grad.copy_(value)


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
    drawn = gradients(model, scale, device, dtype, zeros)

    def make(variant: Variant) -> Step:
        weights = parameters(model, device, dtype)
        fill(weights, drawn)
        step = variant(weights)

        def prepare() -> None:
            if isinstance(step, Prepared):
                step.prepare()
            if refill:
                fill(weights, drawn)

        timed = step.step if isinstance(step, Prepared) else step
        return prepared(prepare, timed, device)

    return {name: partial(make, variant) for name, variant in variants.items()}


def prepared(prepare: Step, step: Step, device: str, count: int = 1) -> Prepared:
    """Return a prepared step; both parts wait until the device has finished."""
    return Prepared(finished(prepare, device), finished(step, device), count)


def finished(step: Step, device: str) -> Step:
    """Return ``step``, followed by a wait for an asynchronous device."""
    if not device.startswith("cuda"):
        return step

    def and_wait() -> None:
        step()
        torch.cuda.synchronize(device)

    return and_wait


def adam(weights: list[Tensor], **arguments: Any) -> torch.optim.Adam:
    """Return torch's Adam, fused unless the arguments say something else."""
    return torch.optim.Adam(weights, lr=ADAM_RATE, **(arguments or {"fused": True}))


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


def of(make: Callable[[list[Tensor]], Any]) -> Variant:
    """Return the variant that is a step of an optimizer."""
    return lambda weights: step_of(make(weights), weights)


# -- the multitask wrapper -------------------------------------------------------------


def multitask_overhead(seed: int, device: str, model: str, zeros: str) -> Makers:
    """Steps of fused Adam: ``ours``, ``bare``, ``loop``."""
    ours = of(lambda weights: lockstep.MultitaskOptimizerWrapper(adam(weights)))
    variants = {"ours": ours, "bare": of(adam), "loop": multitask_loop}
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
    variants = {
        "ours": of(partial(scaled, scale=lockstep.DynamicLossScale)),
        "fixed": of(partial(scaled, scale=lockstep.FixedLossScale)),
        "same": partial(gradscaler, fused=True),
        "usual": partial(gradscaler, fused=None),
        "bare": of(adam),
    }
    return on_weights(variants, device=device, scale=LOSS_SCALE, **what)


def scaled(weights: list[Tensor], scale: Callable[[float], Any]) -> Any:
    """Return our wrapper around fused Adam, which unscales and clips."""
    wrapper = lockstep.MixedPrecisionLossScaleOptimizer
    return wrapper(adam(weights), scale(LOSS_SCALE), clip_norm=CLIP)


def gradscaler(weights: list[Tensor], fused: bool | None) -> Step:
    """Return a scaled and clipped step of ``GradScaler``."""
    optimizer = adam(weights, fused=fused)
    scaler = torch.amp.GradScaler(weights[0].device.type, init_scale=LOSS_SCALE)
    loss = weights[0].new_ones(())

    def step() -> None:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(weights, CLIP)
        scaler.step(optimizer)
        scaler.update()

    return Prepared(lambda: scaler.scale(loss), step)


def our_updates(scaler: str) -> Step:
    """Return updates of one of our scalers after finite gradients."""
    update: Callable[[], object]
    if scaler == "dynamic":
        update = partial(lockstep.DynamicLossScale(LOSS_SCALE).move, True)
    else:
        update = partial(lockstep.AutomaticLossScaler(scaler).update_op, False, 1.0)

    def updates() -> None:
        for _ in range(UPDATES):
            update()

    return Prepared(lambda: None, updates, UPDATES)


def gradscaler_updates(device: str) -> Step:
    """Return updates of ``GradScaler``.

    A scaler must check gradients before each update, so each update has its own scaler.
    """
    weight = nn.Parameter(torch.ones(1, device=device))
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

    return prepared(check, updates, device, UPDATES)


# -- masters ---------------------------------------------------------------------------


def masters_overhead(seed: int, device: str, model: str) -> Makers:
    """Steps of fused Adam on float16 weights with masters: ``ours``, ``loop``."""
    wrapper = partial(lockstep.MixedPrecisionOptimizerWrapper, clip_norm=CLIP)
    ours = of(lambda weights: wrapper(adam(weights), SCALE))
    variants = {"ours": ours, "loop": masters_loop}
    return on_weights(variants, model, device, SCALE, torch.float16)


def masters_loop(weights: list[Tensor]) -> Step:
    """Return the naive loop, which copies each tensor to its master and back."""
    masters = [nn.Parameter(weight.detach().float()) for weight in weights]
    optimizer = adam(masters)

    @torch.no_grad()
    def step() -> None:
        for weight, master in zip(weights, masters, strict=True):
            master.grad = weight.grad.float().mul_(1 / SCALE)
        nn.utils.clip_grad_norm_(masters, CLIP)
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
    ours = of(lambda weights: lockstep.NovoGrad(weights, lr=ADAM_RATE))
    variants = {"ours": ours, "loop": novograd_loop}
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


# -- small tensors, and a user's own optimizer -----------------------------------------


def row_clipping(weights: list[Tensor]) -> Any:
    """Return row clipping of the first tensor, as for an embedding among layers."""
    axes = {weights[0]: [1]}
    return lockstep.VariableClippingOptimizer(adam(weights), axes, LIMIT)


OURS: dict[str, Callable[[list[Tensor]], Any]] = {
    "multitask": lambda w: lockstep.MultitaskOptimizerWrapper(adam(w)),
    "rows": row_clipping,
    "scaling": lambda w: lockstep.MixedPrecisionLossScaleOptimizer(adam(w), "dynamic"),
    "masters": lambda w: lockstep.MixedPrecisionOptimizerWrapper(adam(w), SCALE),
    "stacked": lambda w: lockstep.MixedPrecisionLossScaleOptimizer(
        lockstep.MultitaskOptimizerWrapper(row_clipping(w)), "dynamic"
    ),
    "AdamOptimizer": lambda w: lockstep.AdamOptimizer(w, ADAM_RATE),
}


def small_steps_overhead(seed: int, device: str, model: str, wrapper: str) -> Makers:
    """Steps of Adam: ``ours`` (wrapped), ``bare`` (fused), ``foreach``."""
    dtype = torch.float16 if wrapper == "masters" else torch.float32
    peers = {"bare": of(adam), "foreach": of(partial(adam, foreach=True))}
    return {
        **on_weights({"ours": of(OURS[wrapper])}, model, device, SCALE, dtype),
        **on_weights(peers, model, device, SCALE),
    }


def own_optimizer(seed: int, device: str, model: str, file: str, text: str) -> Makers:
    """Steps of a user's optimizer (``ours``, ``yours``, ``wrapped``) and of Adam."""
    settings = {"file": file, "text": text, "learning_rate": ADAM_RATE}

    def made(weights: list[Tensor]) -> Any:
        return own.make(settings, weights, torch.optim.Optimizer)

    wrapped = of(lambda weights: lockstep.MultitaskOptimizerWrapper(made(weights)))
    variants = {
        "ours": of(made),
        "yours": of(made),
        "wrapped": wrapped,
        "adam": of(adam),
    }
    return on_weights(variants, model, device)


# -- a whole step in one call ----------------------------------------------------------

INPUTS, HIDDEN, OUTPUTS, BATCH = 64, 128, 10, 32
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
    drawn = gradients(model, 1.0, device, torch.float32)
    return lambda: Given.apply(drawn, *weights), weights


def perceptron(device: str) -> tuple[Loss, list[Tensor]]:
    """Return the loss of a small perceptron on one batch, and its parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs, targets = torch.randn(BATCH, INPUTS), torch.randn(BATCH, OUTPUTS)
        layers = [nn.Linear(INPUTS, HIDDEN), nn.ReLU()]
        layers += [nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUTPUTS)]
    model = nn.Sequential(*layers).to(device)
    inputs, targets = inputs.to(device), targets.to(device)
    loss = nn.functional.mse_loss
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
        norm = nn.utils.clip_grad_norm_(weights, CLIP, foreach=True)
        if norm.isfinite():
            optimizer.step()

    return step


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
        return prepared(self.lengthen, step, self.device)


def our_clip(table: Table) -> Step:
    """Return the wrapper's clipping after a sparse step."""
    rows, limit = table.weight.detach(), RowLimit((1,), LIMIT)
    return table.prepared(lambda: clip_rows(rows, table.named, limit))
