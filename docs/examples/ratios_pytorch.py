import torch

from lockstep.pytorch import TensorBoardRecorder, post_process_gradients

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
names, parameters = zip(*model.named_parameters(), strict=True)


class Lines:  # in place of torch.utils.tensorboard.SummaryWriter
    def add_scalar(self, tag, value, global_step):
        print(f"step {global_step}: {tag} {value.item():.3g}")


for step in range(2):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).square().mean().backward()
    post_process_gradients(
        [(parameter.grad, parameter) for parameter in parameters],
        ["larc_summaries"],
        optimizer.param_groups[0]["lr"],
        clip_gradients=None,
        larc_params={"larc_eta": 0.02},
        recorder=TensorBoardRecorder(Lines(), step),
        names=names,
        in_place=True,
    )
    optimizer.step()
