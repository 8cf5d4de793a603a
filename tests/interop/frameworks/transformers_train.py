"""The Trainer of transformers, with its own checkpoints and `resume_from_checkpoint`."""
import sys

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from samples import BATCH, SAVE_EVERY, Samples, finish, loss_of, network, optimizer_of


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, inputs, targets):
        return {"loss": loss_of(self.network(inputs), targets)}


class InOrder(Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class FirstStep(TrainerCallback):
    def on_train_begin(self, arguments, state, control, **_):
        self.step = state.global_step


def collate(samples):
    inputs, targets = zip(*samples)
    return {"inputs": torch.stack(inputs), "targets": torch.stack(targets)}


folder = sys.argv[1]
arguments = TrainingArguments(folder, use_cpu=True, per_device_train_batch_size=BATCH, num_train_epochs=1, save_steps=SAVE_EVERY,
                              lr_scheduler_type="constant", max_grad_norm=0, logging_strategy="no", report_to="none", disable_tqdm=True)
model, first = Model(), FirstStep()
trainer = InOrder(model, arguments, collate, Samples(BATCH * arguments.world_size), optimizers=(optimizer_of(model), None),
                  callbacks=[first])
trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
finish(model.network, first.step, folder)
