"""One thread: the tensors of the tests are too small for more."""

import torch

torch.set_num_threads(1)
