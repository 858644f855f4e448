from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lockstep import pytorch as lockstep

dist.init_process_group("gloo")  # on GPUs "nccl", and a device for each rank
rank, micro_batches = dist.get_rank(), 2
net = torch.nn.Linear(2, 1, bias=False)  # DDP takes the weights of rank 0 everywhere
torch.nn.init.constant_(net.weight, 1.0)
model = DistributedDataParallel(net)
sgd = torch.optim.SGD(net.named_parameters(), lr=0.25)
scale = lockstep.DynamicLossScale(1024.0)
opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, scale, clip_norm=4.0)

data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1e37, 0.0], [0.0, 1.0], [8.0, 0.0]])
for first, second in ((0, 1), (2, 3), (4, 4)):
    for micro_batch in range(micro_batches):
        inputs = data[first if rank == 0 else second]
        is_last = micro_batch + 1 == micro_batches
        # The ranks add their gradients up in the last backward only.
        with nullcontext() if is_last else model.no_sync():
            opt.scale_loss(model(inputs).mean() / micro_batches).backward()
    opt.step()  # all ranks clip with one norm, and skip the same steps
    opt.zero_grad()
    if rank == 0:
        print(net.weight.tolist(), opt.last_step.reason)

dist.barrier()
dist.destroy_process_group()
