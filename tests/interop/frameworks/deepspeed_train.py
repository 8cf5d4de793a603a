"""DeepSpeed with ZeRO: its engine, and its checkpoints with the tag `latest`."""
import os
import sys

import deepspeed
from torch.utils.data import DataLoader, DistributedSampler, Subset

from samples import BATCH, SAVE_EVERY, Samples, finish, loss_of, network, optimizer_of

folder, stage = sys.argv[1], int(sys.argv[2])
ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
model = network()
# Gradients are clipped by default, and SGD counts as untested.
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer_of(model), config={
    "train_micro_batch_size_per_gpu": BATCH, "gradient_clipping": 0, "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": stage}})
engine.load_checkpoint(folder)
began = engine.global_steps
mine = list(DistributedSampler(samples := Samples(BATCH * ranks), ranks, rank, shuffle=False))
for inputs, targets in DataLoader(Subset(samples, mine[began * BATCH:]), batch_size=BATCH):
    engine.backward(loss_of(engine(inputs), targets))
    engine.step()
    if engine.global_steps % SAVE_EVERY == 0:
        engine.save_checkpoint(folder)
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    whole = network()
    whole.load_state_dict(model.state_dict())
finish(whole, began, folder)  # outside: ZeRO 3 communicates as it lets go of the parameters
