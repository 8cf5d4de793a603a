"""scripts/bench/chaos counts the steps that are taken again from the ranks' own lines, by the daemon's rule."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts/bench/faults"))
from chaos_steps import Count, text_of  # noqa: E402

NODES, WORKERS = 2, 2


def lines(number, *spans):
    """What ranks 0, 1, ... write in a round, each its steps `first` to `last`; None: it takes no step."""
    return [f"{number} {rank} {step}" for rank, span in enumerate(spans) if span for step in range(span[0], span[1] + 1)]


def event(kind, number=None, **facts):
    data = facts if number is None else {"round": number, **facts}
    return json.dumps({"type": f"muster.{kind}.v1", "data": data})


def joined(node, name):
    return event("node.joined", node=node, host=name, pid=node)


def ended(number, step, *between, members="1-2"):
    """The events of a round whose last step is `step` by the daemon."""
    return [event("round.sealed", number, members=members), event("round.stepping", number), event("round.ended", number), *between,
            event("round.drained", number, step=step)]


JOINED = [joined(1, "a"), joined(2, "b"), joined(3, "spare")]


def count(steps, events):
    return Count(steps, [*JOINED, *events], NODES * WORKERS, WORKERS)


class ChaosSteps(unittest.TestCase):
    def test_the_steps_after_the_next_rounds_first_one_are_repeated(self):
        got = count(lines(0, *[(1, 12)] * 4) + lines(1, *[(11, 30)] * 4) + lines(2, *[(31, 40)] * 4), ended(0, 12) + ended(1, 30) + ended(2, 40))
        self.assertEqual((got.repeated, got.unsure), (2, []))

    def test_a_step_that_one_rank_did_not_complete_is_not_repeated(self):
        got = count(lines(0, (1, 13), (1, 13), (1, 12), (1, 13)) + lines(1, *[(11, 20)] * 4), ended(0, 12) + ended(1, 20))
        self.assertEqual(got.repeated, 2)
        self.assertEqual(got.unsure, ["round 0: last step 12, by the daemon 12: ranks stopped between steps 12 and 13"])

    def test_the_ranks_of_a_lost_node_do_not_count(self):
        steps = lines(0, (1, 13), (1, 13), (1, 12), (1, 12)) + lines(1, *[(11, 20)] * 4)
        lost = event("node.lost", 0, host="b", pid=2)
        got = count(steps, ended(0, 13, lost) + ended(1, 20))
        self.assertEqual(got.repeated, 3)
        self.assertEqual(got.unsure, ["round 0: last step 13, by the daemon 13: ranks 2 to 3 were lost"])
        spare = event("node.lost", 0, host="spare", pid=3)
        self.assertEqual(count(steps, ended(0, 12, spare)).repeated, 2)

    def test_a_node_that_is_lost_after_the_round_was_left_had_its_last_word(self):
        steps = lines(0, (1, 13), (1, 13), (1, 12), (1, 12)) + lines(1, *[(11, 20)] * 4)
        self.assertEqual(count(steps, [*ended(0, 12), event("node.gone", 0, host="b", pid=2)]).repeated, 2)

    def test_members_are_named_by_group_rank(self):
        steps = lines(0, (1, 12), (1, 12), (1, 13), (1, 13)) + lines(1, *[(11, 20)] * 4)
        lost = event("node.lost", 0, host="spare", pid=3)
        self.assertEqual(count(steps, ended(0, 13, lost, members="3,1")).repeated, 3)

    def test_a_round_in_which_a_rank_took_no_step_is_passed_over(self):
        got = count(lines(0, *[(1, 12)] * 4) + lines(1, (11, 11), (11, 11), (11, 11), None) + lines(2, *[(6, 20)] * 4),
                    [*ended(0, 12), *ended(2, 20)])
        self.assertEqual(got.repeated, 7)
        self.assertEqual(got.unsure, ["round 1: 3 of 4 ranks took a step"])

    def test_no_more_than_the_rounds_own_steps_are_repeated(self):
        got = count(lines(0, *[(11, 12)] * 4) + lines(1, *[(1, 20)] * 4), ended(0, 12) + ended(1, 20))
        self.assertEqual(got.repeated, 2)

    def test_a_round_that_the_daemon_knows_otherwise_is_named(self):
        steps = lines(0, *[(1, 12)] * 4) + lines(1, *[(11, 20)] * 4) + lines(2, *[(21, 22)] * 4)
        unseen = [event("round.sealed", 1, members="1-2"), event("round.resumed", 1), event("round.drained", 1)]
        got = count(steps, ended(0, 11) + unseen + ended(2, 22))
        self.assertEqual(got.unsure, ["round 0: last step 12, by the daemon 11: the counts differ here",
                                      "round 1: last step 20, by the daemon none: the daemon saw no step; "
                                      "a restarted daemon counts from its own start; the counts differ here"])

    def test_a_cut_event_is_left_out(self):
        self.assertEqual(count(lines(0, *[(1, 12)] * 4), [*ended(0, 12), '{"type":"muster.rou']).unsure, [])

    def test_the_numbers_are_printed_and_the_unsure_rounds_where_they_differ(self):
        got = count(lines(0, (1, 13), (1, 12), (1, 13), (1, 13)) + lines(1, *[(11, 20)] * 4), ended(0, 12))
        same = "steps taken again: 2 that all ranks had completed, 2 by muster_job_lost_steps_total; 3 by rank 0's own count"
        self.assertEqual(text_of(got, 3, 2), (same, True))
        text, alike = text_of(got, 3, None)
        self.assertFalse(alike)
        self.assertIn("none by muster_job_lost_steps_total; 3 by rank 0's own count: THEY DIFFER\n  round 0: last step 12", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
