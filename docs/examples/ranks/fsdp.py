import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from lockstep import pytorch as lockstep

dist.init_process_group("gloo")  # on GPUs "nccl", and a device for each rank
rank, micro_batches = dist.get_rank(), 2
mesh = init_device_mesh("cpu", (dist.get_world_size(),))


def build():
    torch.manual_seed(0)
    net = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in ("a", "b")})
    for head in net.values():
        fully_shard(head, mesh=mesh)
    adam = torch.optim.Adam(net.named_parameters(), lr=0.125)
    scale = lockstep.DynamicLossScale(1024.0)
    inner = lockstep.MultitaskOptimizerWrapper(adam)
    return net, lockstep.MixedPrecisionLossScaleOptimizer(inner, scale, clip_norm=1.0)


def fit(net, opt, weight_of_b):
    for micro_batch in range(micro_batches):
        for head in net.values():  # reduce gradients in the last backward only
            head.set_requires_gradient_sync(micro_batch + 1 == micro_batches)
        inputs = torch.full((2, 4), 1.0 + rank)
        loss = net["a"](inputs).square().mean()
        loss = loss + weight_of_b * net["b"](inputs).square().mean()
        opt.scale_loss(loss / micro_batches).backward()
    opt.step()
    opt.zero_grad()


def states(net, opt):
    optimizer = get_optimizer_state_dict(net, opt)
    return {"net": get_model_state_dict(net), "opt": optimizer}


net, opt = build()
fit(net, opt, weight_of_b=1.0)
fit(net, opt, weight_of_b=0.0)  # head b is all zero on every rank, so it is skipped
if rank == 0:
    print(opt.last_step.reason)

resumed, resumed_opt = build()
saved = states(resumed, resumed_opt)
with tempfile.TemporaryDirectory() as own_folder:
    folders = [own_folder]
    dist.broadcast_object_list(folders)  # all ranks take that of rank 0
    path = Path(folders[0], "run")
    dcp.save(states(net, opt), checkpoint_id=path)
    dcp.load(saved, checkpoint_id=path)
    dist.barrier()
set_model_state_dict(resumed, saved["net"])
set_optimizer_state_dict(resumed, resumed_opt, saved["opt"])
fit(net, opt, weight_of_b=1.0)
fit(resumed, resumed_opt, weight_of_b=1.0)
pairs = zip(net.parameters(), resumed.parameters(), strict=True)
same = all(torch.equal(a.full_tensor(), b.full_tensor()) for a, b in pairs)
if rank == 0:
    print("the resumed run has the same weights:", same)

dist.barrier()
dist.destroy_process_group()
