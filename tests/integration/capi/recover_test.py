"""The rules of @muster.recoverable (muster/recover.py), with a stand-in for the context: what an error of the function does,
and what is left of its round. The real way through a round is elastic_kept's."""
import contextlib
import ctypes
import gc
import io
import os
import pathlib
import pickle
import sys
import unittest
import weakref
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "worker_runtime/python"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from line_times import LINE_TIME  # noqa: E402
from muster import recover  # noqa: E402
from muster.library import MusterError, RoundEnded  # noqa: E402

OVER = MusterError("round_ended", "the round ended")
RUNNING = MusterError("invalid_argument", "the round has not ended")
IN_USE = MusterError("refused", "a communicator is still there")


class Held:
    """What the function has made of its round."""


class Recovery(recover.Recovery):
    finished = 0

    def finish(self):
        Recovery.finished += 1

    def may_end_the_round(self, failure):
        return failure.code != "the_programs_own"


class Context:
    """Refuses while anything of the round is there, as the real one does."""

    rank = 3

    def __init__(self, *answers):
        self.answers = list(answers)
        self.made = None
        self.can = None

    def _can_rejoin(self, can):
        self.can = can

    def _rejoin(self):
        if self.made is not None and self.made() is not None:
            raise IN_USE
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer

    def make(self):
        held = Held()
        self.made = weakref.ref(held)
        return held


def run(context, function):
    Recovery.finished = 0
    return recover._run(context, function, Recovery, (), {})


class Recover(unittest.TestCase):
    def setUp(self):
        gc.disable()
        self.addCleanup(gc.enable)

    def caught(self, context, function):
        with self.assertRaises(MusterError) as caught:
            run(context, function)
        return caught.exception

    def test_the_function_is_called_again_with_nothing_of_the_round_before(self):
        calls = []

        def train(context, resume):
            calls.append(resume)
            if resume.count < 2:
                held = context.make()
                raise OVER
            return "done"
        self.assertEqual(run(Context(), train), "done")
        self.assertEqual([resume.count for resume in calls], [0, 1, 2])
        self.assertEqual(Recovery.finished, 3)

    def test_what_the_frames_of_an_earlier_error_hold_is_left_too(self):
        def first(context):
            held = context.make()
            raise ValueError("before")

        def train(context, resume):
            if resume:
                return "done"
            try:
                first(context)
            except ValueError:
                raise MusterError("round_ended", "while that was handled")
        self.assertEqual(run(Context(), train), "done")

    def test_a_cycle_does_not_keep_the_round_open(self):
        def train(context, resume):
            if resume:
                return "done"
            held = context.make()
            held.itself = held
            raise OVER
        self.assertEqual(run(Context(), train), "done")

    def test_what_is_still_there_costs_this_process_with_one_line(self):
        kept = []

        def train(context, resume):
            kept.append(context.make())
            raise OVER
        context = Context()
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertIs(self.caught(context, train), OVER)
        self.assertRegex(said.getvalue(), rf"^{LINE_TIME}muster: rank 3 cannot stay in its process: .*still there; if the job goes on, it is "
                         r"started again\n$")
        self.assertIs(context.can, False)

    def test_an_error_of_the_programs_own_is_raised_as_it_is(self):
        def train(context, resume):
            raise MusterError("the_programs_own", "shapes differ") from KeyError("its cause")
        context = Context()
        context._rejoin = mock.Mock(side_effect=RUNNING)
        error = self.caught(context, train)
        self.assertIsInstance(error.__cause__, KeyError)
        self.assertFalse(context._rejoin.called)
        self.assertEqual(Recovery.finished, 1)

    def test_why_no_round_follows_is_told_and_hides_no_cause(self):
        no_round = MusterError("cancelled", "no round follows")
        for cause in (None, KeyError("its cause")):
            def train(context, resume):
                raise MusterError("round_ended", "over") from cause
            self.assertIs(self.caught(Context(no_round), train).__cause__, cause or no_round)

        def alone(context, resume):
            raise MusterError("timeout", "this rank's own")
        self.assertIsNone(self.caught(Context(RUNNING), alone).__cause__)

    def test_the_agents_word_may_come_late(self):
        patient = mock.Mock(patience=lambda failure: 60)
        self.assertIsNone(recover._enter_next_round(Context(RUNNING, RUNNING), patient, OVER))
        hasty = mock.Mock(patience=lambda failure: 0)
        self.assertIs(recover._enter_next_round(Context(RUNNING), hasty, OVER), RUNNING)

    def test_an_error_is_the_same_after_a_pickle(self):
        """As between the processes of a pool."""
        for error in (RUNNING, RoundEnded("round_ended", "over")):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), again.code, str(again)), (type(error), error.code, str(error)))

    def test_the_variables_that_the_library_has_set_are_those_of_the_script(self):
        libc = ctypes.CDLL(None)
        libc.setenv(b"MUSTER_RECOVER_TEST", b"2", 1)
        os.environ["MUSTER_RECOVER_GONE"] = "1"
        libc.unsetenv(b"MUSTER_RECOVER_GONE")
        recover.load_environment()
        self.assertEqual(os.environ.pop("MUSTER_RECOVER_TEST"), "2")
        self.assertNotIn("MUSTER_RECOVER_GONE", os.environ)


if __name__ == "__main__":
    unittest.main(verbosity=2)
