"""The steps that a chaos run takes again, from the trainer's lines "ROUND RANK STEP", by the rule of the daemon's count.

The last step of a round is the last one that all its ranks have completed. The ranks of a node that was lost do not count: its
agent reported no last step. A step counts as repeated if it is between the first step of the next round and that last step. A
round in which a rank took no step counts for nothing. rendezvous/events/goodput_ledger.cpp has the daemon's side. Its events say
which nodes were lost, and what it took for each round's last step."""
import json


class Round:
    """What the daemon's events tell of one round."""

    def __init__(self):
        self.nodes = []  # (host, pid) by group rank
        self.lost = set()  # group ranks of lost nodes
        self.drained = self.seen = self.resumed = False
        self.last = None  # the daemon's last step


def rounds_told(events):
    """Round number -> Round, from the lines of `musterd --events`. Their order tells of which round an event is. A cut line is left out."""
    rounds, known, now = {}, {}, Round()
    for line in events:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind, data = event["type"].removeprefix("muster.").removesuffix(".v1"), event["data"]
        node = data.get("host"), data.get("pid")
        if kind == "node.joined":
            known[data["node"]] = node
        elif kind == "round.sealed":
            now = rounds[data["round"]] = Round()
            now.nodes = [known.get(one) for one in numbers(data.get("members", ""))]
        elif kind == "round.stepping":
            now.seen = True
        elif kind == "round.resumed":
            now.resumed = True
        elif kind == "round.drained":
            now.drained, now.last = True, data.get("step")
        elif kind in ("node.lost", "node.left", "node.gone") and node in now.nodes and not now.drained:
            now.lost.add(now.nodes.index(node))
    return rounds


def numbers(members):
    """1-7,12,9"""
    ends = [[int(end) for end in part.split("-")] for part in members.split(",") if part]
    return [one for part in ends for one in range(part[0], part[-1] + 1)]


def steps_by_round(lines):
    """Round number -> rank -> (first step, last step)."""
    rounds = {}
    for line in lines:
        number, rank, step = map(int, line.split())
        ranks = rounds.setdefault(number, {})
        ranks[rank] = ranks.get(rank, (step, step))[0], step
    return rounds


class Count:
    """`repeated`: the steps taken again. `unsure`: a line for each round whose record cannot be exact, with the daemon's own one."""

    def __init__(self, lines, events, ranks, ranks_of_node):
        self.repeated, self.unsure = 0, []
        told, before = rounds_told(events), None
        for number, steps in sorted(steps_by_round(lines).items()):
            seen = told.get(number, Round())
            lost = {rank for rank in range(ranks) if rank // ranks_of_node in seen.lost}
            if len(steps) < ranks:
                self.unsure.append(f"round {number}: {len(steps)} of {ranks} ranks took a step")
                continue
            first = min(step for step, _ in steps.values())
            lasts = [last for rank, (_, last) in steps.items() if rank not in lost] or [last for _, last in steps.values()]
            if before:
                self.repeated += max(0, before[1] - max(first, before[0]) + 1)
            before = first, min(lasts)
            self.judge(number, seen, sorted(lost), lasts)

    def judge(self, number, seen, lost, lasts):
        why = []
        if lost:
            why.append(f"ranks {lost[0]} to {lost[-1]} were lost" if len(lost) > 1 else f"rank {lost[0]} was lost")
        if min(lasts) != max(lasts):
            why.append(f"ranks stopped between steps {min(lasts)} and {max(lasts)}")
        if not seen.seen:
            why.append("the daemon saw no step")
        if seen.resumed:
            why.append("a restarted daemon counts from its own start")
        if seen.drained and seen.last != min(lasts):
            why.append("the counts differ here")
        if why:
            self.unsure.append(f"round {number}: last step {min(lasts)}, by the daemon {'none' if seen.last is None else seen.last}: " + "; ".join(why))


def text_of(count, by_rank_0, daemons):
    """(text, whether the daemon's count is this one)"""
    text = (f"steps taken again: {count.repeated} that all ranks had completed, {'none' if daemons is None else daemons} by "
            f"muster_job_lost_steps_total; {by_rank_0} by rank 0's own count")
    if count.repeated == daemons:
        return text, True
    return "\n".join([f"{text}: THEY DIFFER", *("  " + line for line in count.unsure)]), False
