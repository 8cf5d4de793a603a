// Simulated workers that outlive their round (agent/STATES.md, Kept workers). What a held worker has started stays with
// it.
#include <algorithm>

#include "tests/simulation/processes/guardian.h"

namespace muster::simulation {

void Guardian::keep(const std::vector<std::uint32_t>& local_ranks) {
    if (local_ranks.empty() && setting_.bugs.never_releases) return;
    command([this, local_ranks] {
        for (Process& process : processes_) {
            const bool leads = std::ranges::any_of(processes_, [&process](const Process& one) {
                return one.leader && one.local_rank == process.local_rank && one.round == process.round;
            });
            process.stays = leads && std::ranges::find(local_ranks, process.local_rank) != local_ranks.end();
        }
    });
}

void Guardian::say(const Process& leader, Duration after, agent::KeepWord word) {
    events_.after(after, [this, pid = leader.pid, turn = leader.turn, word] {
        const Process* const process = find(pid);
        if (process != nullptr && process->turn == turn && agent_there_ && on_keeping)
            on_keeping(process->local_rank, word);
    });
}

void Guardian::hold() {
    command([this] {
        for (const Process& process : processes_)
            if (process.leader && process.stays && !process.held)
                events_.after(process.script.leaves_round_within,
                              [this, pid = process.pid, turn = process.turn] { become_held(pid, turn); });
    });
}

void Guardian::become_held(std::int32_t pid, int turn) {
    const Process* const leader = find(pid);
    if (leader == nullptr || !leader->alive || !leader->stays || leader->turn != turn) return;
    chronicle_.count(Happening::worker_held);
    chronicle_.tell(setting_.name, " worker ", pid, " has left round ", leader->round, " and is held");
    const Process held = *leader;
    for (Process& process : processes_) {
        if (process.local_rank != held.local_rank || process.round != held.round) continue;
        process.held = true;
        ++process.turn;
        witness_.process_held(process.pid);
    }
    const Process& now = *find(pid);
    say(now, random_.between(Duration{10us}, Duration{300us}), agent::KeepWord::held);
    if (held.script.lives_held != never) plan_own_end(now, held.script.lives_held);
}

void Guardian::resume(const std::vector<std::uint32_t>& local_ranks, Round round) {
    if (local_ranks.empty()) return;
    command([this, local_ranks, round] {
        for (const auto local_rank : local_ranks) {
            auto script = setting_.script(round, local_rank);
            for (Process& process : processes_) {
                if (!process.held || process.local_rank != local_rank) continue;
                process.held = false;
                process.round = round;
                ++process.turn;
                witness_.process_resumed(round, process.pid);
                if (!process.leader) continue;
                chronicle_.count(Happening::worker_resumed);
                chronicle_.tell(setting_.name, " worker ", process.pid, " enters round ", round);
                process.script = script;
                if (script.lives != never) plan_own_end(process, script.lives);
                if (script.leaves_round_within != never)
                    say(process, random_.between(Duration{1ms}, Duration{30ms}), agent::KeepWord::can);
            }
        }
    });
}

}  // namespace muster::simulation
