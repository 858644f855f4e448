"""The processes of this task in PyTorch: workers that can also measure their link."""

from harness.tasks.slow_link.machines import Link, measure
from harness.tasks.worker_team import torch_model


class Worker(torch_model.Worker):
    """A process on a separate machine."""

    def measure_link(self, host: str, port: int) -> Link:
        """Measure the link to another machine."""
        return measure(host, port)
