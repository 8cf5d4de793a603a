"""Our samplers beside PyTorch's: the same indices, to the last one; and our elastic sampler in torch's DataLoader."""
import contextlib
import io
import itertools
import os
import sys
import unittest
import warnings
from pathlib import Path

try:
    import torch
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler as TorchSampler
except ImportError:
    python = os.environ.get("MUSTER_TEST_PYTHON", "")
    if Path(python).exists() and Path(python) != Path(sys.executable):
        os.execv(python, [python, *sys.argv])
    if os.environ.get("CI") == "true":
        sys.exit(f"samplers: {python or sys.executable} has no torch, which CI requires (scripts/setup --tests installs it)")
    print("samplers: skipped, no torch (scripts/setup --tests installs it)")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "worker_runtime/python"))
import muster

SEEDS = (0, 7, 2**32 + 7, 2**64 - 1001, -1, -2**63)


@contextlib.contextmanager
def environment(**variables):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Distributed(unittest.TestCase):
    def check(self, count, world, rank, shuffle, seed, drop_last, epochs):
        arguments = {"num_replicas": world, "rank": rank, "shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        theirs, ours = TorchSampler(range(count), **arguments), muster.DistributedSampler(range(count), **arguments)
        self.assertEqual((len(ours), ours.num_samples, ours.total_size), (len(theirs), theirs.num_samples, theirs.total_size))
        for epoch in epochs:
            theirs.set_epoch(epoch)
            ours.set_epoch(epoch)
            if list(ours) != list(theirs):
                self.fail(f"{count} samples, {arguments}, epoch {epoch}: {list(ours)[:8]}, not {list(theirs)[:8]}")

    def test_every_rank_of_small_worlds(self):
        for count, world in itertools.product((0, 1, 2, 3, 10, 17, 64), range(1, 9)):
            for shuffle, drop_last in itertools.product((True, False), (True, False)):
                for rank in range(world):
                    self.check(count, world, rank, shuffle, 3, drop_last, (0, 5))

    def test_every_seed_that_torch_takes(self):
        for seed, count in itertools.product(SEEDS, (10, 1000)):
            self.check(count, 3, 1, True, seed, False, (0, 1, 2, 1000))

    def test_large_data(self):
        self.check(1000, 8, 7, True, 1, False, range(20))
        self.check(1_281_167, 8, 5, True, 42, False, (0, 89))
        self.check(1_281_167, 7, 6, True, 42, True, (3,))

    def test_a_whole_permutation_of_five_million(self):
        ours = array_of(muster.DistributedSampler(5_000_000, 1, 0, seed=9))
        self.assertTrue(torch.equal(ours, torch.randperm(5_000_000, generator=torch.Generator().manual_seed(9))))

    def test_a_loader_takes_it_for_torch_s(self):
        data = list(range(100, 137))
        loaders = [DataLoader(data, batch_size=4, sampler=sampler(data, num_replicas=2, rank=1))
                   for sampler in (TorchSampler, muster.DistributedSampler)]
        for epoch in range(2):
            for loader in loaders:
                loader.sampler.set_epoch(epoch)
            theirs, ours = ([batch.tolist() for batch in loader] for loader in loaders)
            self.assertEqual(ours, theirs)

    def test_world_and_rank_come_from_the_process_group_or_the_launcher(self):
        with environment(WORLD_SIZE="4", RANK="3"):
            sampler = muster.DistributedSampler(10)
            self.assertEqual((sampler.num_replicas, sampler.rank), (4, 3))
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        try:
            with environment(WORLD_SIZE="4", RANK="3"):
                sampler = muster.DistributedSampler(10)
            self.assertEqual((sampler.num_replicas, sampler.rank), (1, 0))
        finally:
            torch.distributed.destroy_process_group()


def array_of(sampler):
    return torch.tensor(list(sampler))


class Elastic(unittest.TestCase):
    def test_in_a_loader_with_workers_only_commits_move_the_cursor(self):
        data = list(range(50))
        sampler = muster.ElasticSampler(data, 8, num_replicas=2, rank=0, seed=5)
        for workers in (0, 2):
            with self.subTest(workers=workers):
                seen = []
                loader = DataLoader(data, batch_sampler=sampler, num_workers=workers)
                self.assertEqual(len(loader), 7)
                before = sampler.epoch
                for step, batch in enumerate(loader):
                    seen += batch.tolist()
                    self.assertEqual(sampler.cursor, 8 * step, "the loader is ahead, the cursor is not")
                    sampler.commit()
                self.assertEqual((sampler.epoch, sampler.cursor), (before + 1, 0))
                order = torch.randperm(50, generator=torch.Generator().manual_seed(5 + before)).tolist()
                self.assertEqual(seen, order[0::2])

    def test_a_loader_that_was_left_in_the_middle_goes_on_at_the_cursor(self):
        data = list(range(40))
        sampler = muster.ElasticSampler(data, 4, seed=1)
        order = torch.randperm(40, generator=torch.Generator().manual_seed(1)).tolist()
        for step, batch in enumerate(DataLoader(data, batch_sampler=sampler, num_workers=1)):
            if step == 3:
                break
            sampler.commit()
        self.assertEqual(sampler.cursor, 12)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first = next(iter(DataLoader(data, batch_sampler=sampler)))
        self.assertEqual(first.tolist(), order[12:16])

    def test_state_travels_in_a_torch_checkpoint(self):
        sampler = muster.ElasticSampler(10, 3, seed=2**64 - 1)
        next(iter(sampler))
        sampler.commit()
        other = muster.ElasticSampler(10, 5, seed=-1)
        file = io.BytesIO()
        torch.save(sampler.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        self.assertEqual(other.state_dict(), sampler.state_dict())
        self.assertEqual(list(other), list(sampler))


if __name__ == "__main__":
    unittest.main(verbosity=2)
