#include "tests/simulation/campaign.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "rendezvous/base/check.h"
#include "tests/support/end_with_test.h"

namespace muster::simulation {

namespace {

struct Note {
    std::uint64_t seed;
    char invariant[16];
    char what[2000];
};

/// What a process tells the one that started it, in memory that outlives it.
struct Report {
    std::uint64_t seed = 0;  ///< under way; 0: none
    std::uint64_t next = 0;
    std::uint64_t world_count = 0;
    std::uint64_t event_count = 0;
    std::uint64_t note_count = 0;
    Tally tally{};
    Note notes[64];
};

void copy_text(char* to, std::size_t size, std::string_view text) {
    const std::size_t length = std::min(text.size(), size - 1);
    std::memcpy(to, text.data(), length);
    to[length] = '\0';
}

void add_note(Report& report, std::uint64_t seed, std::string_view invariant, std::string_view what) {
    if (report.note_count >= std::size(report.notes)) return;
    Note& note = report.notes[report.note_count++];
    note.seed = seed;
    copy_text(note.invariant, sizeof note.invariant, invariant);
    copy_text(note.what, sizeof note.what, what);
}

void work(const CampaignConfig& config, Report& report) {
    while (report.next <= config.last && report.note_count < config.failures_max) {
        const std::uint64_t seed = report.next;
        report.seed = seed;
        report.next += config.jobs;
        const WorldResult result = World(seed, config.plant, Chronicle::Mode::quiet).run();
        ++report.world_count;
        report.event_count += result.event_count;
        for (std::size_t i = 0; i < happening_count; ++i) report.tally[i] += result.tally[i];
        if (result.violation) {
            add_note(report, seed, result.violation->invariant,
                     cat("after ", describe(result.violation->when), ": ", result.violation->what));
        }
        report.seed = 0;
    }
}

pid_t start_process(const CampaignConfig& config, Report& report) {
    const pid_t child = test::fork_with_test();
    MUSTER_CHECK(child >= 0);
    if (child > 0) return child;
    work(config, report);
    _exit(0);
}

/// Waits for the process; one that died is told of by its seed, and another one takes over behind it.
void see_through(const CampaignConfig& config, Report& report, pid_t child) {
    for (;;) {
        int status = 0;
        MUSTER_CHECK(waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
        add_note(report, report.seed, "abort",
                 WIFSIGNALED(status) ? cat("the process died by signal ", WTERMSIG(status))
                                     : cat("the process exited with code ", WEXITSTATUS(status)));
        if (report.note_count >= config.failures_max) return;
        child = start_process(config, report);
    }
}

}  // namespace

CampaignResult run_campaign(const CampaignConfig& config) {
    void* const memory =
        mmap(nullptr, sizeof(Report) * config.jobs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUSTER_CHECK(memory != MAP_FAILED);
    auto* const reports = static_cast<Report*>(memory);
    std::vector<pid_t> children;
    std::fflush(nullptr);
    for (std::uint32_t i = 0; i < config.jobs; ++i) {
        new (&reports[i]) Report;
        reports[i].next = config.first + i;
        children.push_back(start_process(config, reports[i]));
    }
    CampaignResult result;
    for (std::uint32_t i = 0; i < config.jobs; ++i) {
        see_through(config, reports[i], children[i]);
        result.world_count += reports[i].world_count;
        result.event_count += reports[i].event_count;
        for (std::size_t k = 0; k < happening_count; ++k) result.tally[k] += reports[i].tally[k];
        for (std::uint64_t k = 0; k < reports[i].note_count; ++k) {
            const Note& note = reports[i].notes[k];
            result.failures.push_back({note.seed, note.invariant, note.what});
        }
    }
    munmap(memory, sizeof(Report) * config.jobs);
    std::sort(result.failures.begin(), result.failures.end(),
              [](const auto& a, const auto& b) { return a.seed < b.seed; });
    return result;
}

}  // namespace muster::simulation
