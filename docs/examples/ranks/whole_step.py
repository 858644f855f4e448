import torch
import torch.distributed as dist

from lockstep import pytorch as lockstep

dist.init_process_group("gloo")  # on GPUs "nccl", and a device for each rank
rank = dist.get_rank()
model = torch.nn.Linear(2, 1, bias=False)
torch.nn.init.constant_(model.weight, 1.0)  # the same on all ranks
step = lockstep.optimize_loss(
    lambda inputs: model(inputs).mean(),
    "Momentum",
    {"momentum": 0.5},
    0.25,
    model=model,  # not in DistributedDataParallel
    clip_gradients=4.0,
    on_horovod=True,  # average over the ranks of torch.distributed
    iter_size=2,  # every second call
)
data = [[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 6.0]]
for k in range(4):
    step(torch.tensor(data[(k + rank) % 4]))
    if rank == 0:
        print(model.weight.tolist(), step.last_step.reason)

dist.barrier()
dist.destroy_process_group()
