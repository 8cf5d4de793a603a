"""PyTorch's own TCPStore client, used as programs use it, on our server. Runs under the Python that has torch."""
import datetime
import os
import sys
import threading
import unittest

from servers import PYTHON, require_torch, running

try:
    import torch.distributed as dist
except ImportError:
    require_torch("torch's client on our store")
    os.execv(PYTHON, [str(PYTHON), "-B", *sys.argv])


def seconds(number):
    return datetime.timedelta(seconds=number)


class TorchClient(unittest.TestCase):
    def setUp(self):
        server = running("ours")
        self.port = server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)

    def client(self, **options):
        options = {"timeout": seconds(60), "is_master": False} | options
        return dist.TCPStore("localhost", self.port, **options)

    def test_every_operation(self):
        store = self.client()
        store.set("key", "value")
        self.assertEqual(store.get("key"), b"value")
        store.set("key", b"\0\xff")
        self.assertEqual(store.get("key"), b"\0\xff")
        store.set("empty", "")
        self.assertEqual(store.get("empty"), b"")
        self.assertEqual(store.add("n", 5), 5)
        self.assertEqual(store.add("n", -7), -2)
        self.assertEqual(store.get("n"), b"-2")
        self.assertTrue(store.check(["key", "n"]))
        self.assertFalse(store.check(["key", "missing"]))
        self.assertEqual(store.compare_set("cas", "expected", "new"), b"expected")
        self.assertEqual(store.compare_set("cas", "", "new"), b"new")
        self.assertEqual(store.compare_set("cas", "new", "newer"), b"newer")
        self.assertEqual(store.compare_set("cas", "new", "lost"), b"newer")
        store.append("log", "one ")
        store.append("log", "two")
        self.assertEqual(store.get("log"), b"one two")
        store.multi_set(["a", "b"], ["1", "22"])
        self.assertEqual(store.multi_get(["a", "b"]), [b"1", b"22"])
        store.wait(["a", "b"], seconds(60))
        self.assertTrue(store.delete_key("a"))
        self.assertFalse(store.delete_key("a"))
        self.assertEqual(store.num_keys(), 6)
        self.assertTrue(store.has_extended_api())
        if hasattr(store, "list_keys"):
            self.assertEqual(sorted(store.list_keys()), ["b", "cas", "empty", "key", "log", "n"])

    def test_queues(self):
        store, other = self.client(), self.client()
        if not hasattr(store, "queue_push"):
            self.skipTest("this torch has no queues")
        store.queue_push("q", b"first")
        store.queue_push("q", b"second")
        self.assertEqual(store.queue_len("q"), 2)
        self.assertEqual(other.queue_pop("q"), b"first")
        self.assertEqual(other.queue_pop("q"), b"second")
        with self.assertRaises(dist.QueueEmptyError):
            store.queue_pop("q", block=False)
        popped = []
        popping = threading.Thread(target=lambda: popped.append(other.queue_pop("q")))
        popping.start()
        store.queue_push("q", b"late")
        popping.join(60)
        self.assertEqual(popped, [b"late"])

    def test_a_wait_that_times_out_leaves_the_client_usable(self):
        store = self.client()
        with self.assertRaisesRegex(dist.DistStoreError, "wait timeout"):
            store.wait(["never"], seconds(0.2))
        impatient = self.client()
        impatient.set_timeout(seconds(0.2))  # once it is connected
        with self.assertRaises(dist.DistStoreError):
            impatient.get("never")
        store.set("k", "v")
        self.assertEqual(store.get("k"), b"v")

    def test_a_waiting_get_is_released_by_another_client(self):
        waiting, setting = self.client(), self.client()
        got = []
        thread = threading.Thread(target=lambda: got.append(waiting.get("k")))
        thread.start()
        setting.set("k", "at last")
        thread.join(60)
        self.assertEqual(got, [b"at last"])

    def test_workers_are_counted_and_clones_are_connections_of_their_own(self):
        for _ in range(3):
            store = self.client(world_size=4)
        self.assertEqual(store.num_keys(), 1)
        clone = store.clone()
        clone.set("k", "v")
        self.assertEqual(store.get("k"), b"v")

    def test_prefix_stores_nest(self):
        store = self.client()
        dist.PrefixStore("outer", dist.PrefixStore("inner", store)).set("k", "v")
        self.assertEqual(store.get("inner/outer/k"), b"v")

    def test_large_values_up_to_the_limit(self):
        store = self.client()
        for size in (1, 1439, 1440, 1441, 65536, 1 << 20, 8 << 20):
            store.set("large", b"x" * size)
            self.assertEqual(len(store.get("large")), size)
        store.multi_set([f"m{i}" for i in range(500)], [b"y" * 10_000] * 500)
        self.assertEqual(store.multi_get([f"m{i}" for i in range(500)]), [b"y" * 10_000] * 500)

    def test_what_the_server_closes_is_an_error_of_that_client_alone(self):
        bad, good = self.client(), self.client()
        bad.set("word", "word")
        with self.assertRaises(dist.DistNetworkError):
            bad.add("word", 1)
        self.assertEqual(good.get("word"), b"word")

    def test_a_barrier(self):
        stores = [self.client() for _ in range(3)]
        if not hasattr(stores[0], "barrier"):
            self.skipTest("this torch has no store barrier in Python")
        threads = [threading.Thread(target=store.barrier, args=("b", 3, seconds(60))) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())


if __name__ == "__main__":
    unittest.main(verbosity=2)
