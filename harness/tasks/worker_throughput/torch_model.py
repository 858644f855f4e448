"""The processes of this task in PyTorch: those of all tasks with workers."""

from harness.tasks.worker_team.torch_model import Adder as Adder
from harness.tasks.worker_team.torch_model import Worker as Worker
