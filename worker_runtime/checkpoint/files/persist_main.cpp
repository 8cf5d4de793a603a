// muster-persist: the agent runs it when its memory would otherwise be the only place of the newest step.
//
//   muster-persist [--whole] DIRECTORY ROUND SECONDS DESCRIPTOR:BYTES...
//
// The descriptors are inherited; each is the copy of one rank (persist.h). With --whole it also waits for the parts of
// other nodes, and fails if they are not written in time. It prints the result as one line on stdout.
// Exit codes: 0 success (the line reports what was done; no line: nothing to do); 1 failed, with the reason; 2 wrong
// arguments; 3 the directory now belongs to another job or a later round.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/files/persist.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// If the file system hangs in a call beyond the deadline, SIGALRM ends this process after this time.
constexpr unsigned hang_seconds = 2;

int say(int exit_code, const std::string& line) {
    std::puts(line.c_str());
    return exit_code;
}

bool parse_copy(std::string_view text, KeptCopy& copy) {
    const auto colon = text.find(':');
    int descriptor = -1;
    if (colon == std::string_view::npos || !parse_number(text.substr(0, colon), descriptor) || descriptor < 3 ||
        !parse_number(text.substr(colon + 1), copy.size_bytes)) {
        return false;
    }
    copy.memory = FileDescriptor(descriptor);
    return true;
}

/// Describes the newest checkpoint that the job can continue from.
std::string safe_in(const std::string& directory) {
    const auto listing = list_directory(directory);
    if (!listing) return cat("cannot list what is safe there: ", listing.error().context);
    if (listing->checkpoints.empty()) return cat("there is no checkpoint in ", directory);
    const auto& newest = listing->checkpoints.front();
    return cat("step ", newest.step, " is safe in ", directory, '/', to_string(newest));
}

int run(const PersistTerms& terms, std::vector<KeptCopy> copies) {
    const auto done = persist_copies(terms, std::move(copies));
    if (!done) {
        return say(done.error().code == Errc::refused ? 3 : 1,
                   cat("the copies in memory were not written to disk: ", done.error().context, "; ",
                       safe_in(terms.directory)));
    }
    if (done->step < 0) return 0;
    if (done->checkpoint) {
        return say(0, cat("step ", done->step, " was written from memory to ", terms.directory, '/',
                          to_string(*done->checkpoint)));
    }
    return say(0, cat("this node's part of step ", done->step, " was written from memory to ", terms.directory,
                      "; it becomes a checkpoint when the parts of all nodes are there"));
}

}  // namespace

int main(int argc, char** argv) {
    survive_file_size_limit();
    // These signals stop the job or announce preemption. The agent receives them and runs this process as its response,
    // so it must survive them.
    for (const int stop : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(stop, SIG_IGN);
    std::vector<std::string_view> words(argv + 1, argv + argc);
    PersistTerms terms;
    terms.wait_for_others = std::erase(words, "--whole") > 0;
    unsigned seconds = 0;
    bool fine = words.size() > 3 && parse_number(words[1], terms.round) && parse_number(words[2], seconds);
    std::vector<KeptCopy> copies;
    for (std::size_t i = 3; fine && i < words.size(); ++i) fine = parse_copy(words[i], copies.emplace_back());
    if (!fine) return say(2, "usage: muster-persist [--whole] DIRECTORY ROUND SECONDS DESCRIPTOR:BYTES...");
    terms.directory = words[0];
    terms.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    ::alarm(seconds + hang_seconds);
    return run(terms, std::move(copies));
}
