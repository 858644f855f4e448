"""The processes of this task in PyTorch, the same as in all tasks with workers."""

from harness.tasks.worker_team.torch_model import Adder as Adder
from harness.tasks.worker_team.torch_model import Worker as Worker
