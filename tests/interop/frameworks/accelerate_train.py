"""Accelerate: prepare(), save_state(), load_state() and skip_first_batches()."""
import pathlib
import sys

from accelerate import Accelerator
from torch.utils.data import DataLoader

from samples import BATCH, SAVE_EVERY, Samples, finish, loss_of, network, optimizer_of

folder = pathlib.Path(sys.argv[1])
latest = folder / "latest"
accelerator = Accelerator(cpu=True)
model = network()
samples = DataLoader(Samples(BATCH * accelerator.num_processes), batch_size=BATCH)
model, optimizer, loader = accelerator.prepare(model, optimizer_of(model), samples)
began = 0
if latest.exists():
    began = int(latest.read_text())
    accelerator.load_state(folder / f"step_{began}")
for step, (inputs, targets) in enumerate(accelerator.skip_first_batches(loader, began), began + 1):
    optimizer.zero_grad()
    accelerator.backward(loss_of(model(inputs), targets))
    optimizer.step()
    if step % SAVE_EVERY == 0:
        accelerator.save_state(folder / f"step_{step}")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            latest.with_suffix(".new").write_text(str(step))
            latest.with_suffix(".new").rename(latest)
finish(accelerator.unwrap_model(model), began, folder)
