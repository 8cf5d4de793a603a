"""Lightning: a LightningModule with ModelCheckpoint; `ckpt_path="last"` and a loader with a state resume within the epoch."""
import sys

import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from samples import BATCH, SAVE_EVERY, Samples, finish, loss_of, network, optimizer_of


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = network()

    def train_dataloader(self):
        ranks = self.trainer.world_size
        sampler = DistributedSampler(Samples(BATCH * ranks), ranks, self.trainer.global_rank, shuffle=False)
        return StatefulDataLoader(sampler.dataset, batch_size=BATCH, sampler=sampler)

    def on_train_start(self):
        self.began = self.global_step

    def training_step(self, batch, _):
        return loss_of(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return optimizer_of(self.network)


folder, strategy = sys.argv[1:]
checkpoints = ModelCheckpoint(folder, every_n_train_steps=SAVE_EVERY, save_last=True)
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=1, use_distributed_sampler=False, logger=False,
                            callbacks=[checkpoints], enable_progress_bar=False, enable_model_summary=False)
module = Module()
trainer.fit(module, ckpt_path="last")
finish(module.network, module.began, folder)
