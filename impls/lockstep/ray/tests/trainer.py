"""A worker of PyTorch with a small model, in whatever process it is made."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from lockstep.ray import RayCenter
from lockstep.ray.center import CenterActor

PERIOD = 2


class Trainer:
    """A worker that pushes changes to a center; ``seed``: of its model."""

    def __init__(self, seed: int, center: Any) -> None:
        import torch

        from lockstep.pytorch import AGNCustomGetter, AGNOptimizer

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.model = torch.nn.Linear(3, 2)
        getter = AGNCustomGetter("cpu", center=center)
        sgd = torch.optim.SGD(getter(self.model), lr=0.125)
        self.worker = AGNOptimizer(sgd, 2, getter, PERIOD, commit="delta")
        self.worker.get_init_op(0)

    def step(self, seed: int) -> None:
        """Take a local step on the batch of this number."""
        import torch

        inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        self.worker.zero_grad()
        self.model(inputs).square().sum().backward()
        self.worker.step()

    def round(self, seed: int) -> None:
        """Take the local steps of a round."""
        for number in range(PERIOD):
            self.step(seed + number)

    def weights(self) -> dict[str, Any]:
        """Return its own weights."""
        return {n: p.detach().numpy() for n, p in self.model.named_parameters()}


class DyingCenter(CenterActor):
    """A center whose process is killed once, after a push and before its reply."""

    def call(self, method: str, *arguments: Any) -> Any:
        reply = super().call(method, *arguments)
        mark = Path(self.center.path.parent, "died")
        if method == "push" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return reply


def main(address: str, name: str, directory: str) -> None:
    """Train in a process of its own: a round for each line that it reads."""
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    center = RayCenter(name, directory=directory)
    trainer = Trainer(int(os.environ["SEED"]), center)
    print("joined", *trainer.weights()["bias"].tolist(), flush=True)
    for number, line in enumerate(sys.stdin):
        trainer.round(number) if "round" in line else trainer.step(number)
        print("done", *trainer.weights()["bias"].tolist(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
