#include "launcher/report/exit_code.h"

#include <array>
#include <cerrno>

namespace muster::launcher {

namespace {

constexpr std::array exit_code_rows{
    ExitCodeRow{"0", "every worker of the last round exited 0"},
    ExitCodeRow{"2", "usage: an option or a variable is wrong; one line names it"},
    ExitCodeRow{"70",
                "internal error: a bug in muster, or the operating system refused a resource; also if all workers "
                "exited 0 but their last checkpoint was not written to disk"},
    ExitCodeRow{"75", "retry: rendezvous timeout, daemon lost, or too few nodes left; the job itself has not failed"},
    ExitCodeRow{"76", "saved and left: this node was drained, or the workers saved a checkpoint and exited"},
    ExitCodeRow{"77", "do not start again: a crash loop, or a worker asked for it"},
    ExitCodeRow{"78",
                "configuration error: agents of the job disagree, the job id is in use, or a port or directory is not "
                "available"},
    ExitCodeRow{"126", "the program was found but cannot be executed"},
    ExitCodeRow{"127", "the program or its interpreter was not found"},
    ExitCodeRow{"128+n", "muster was stopped by signal n"},
    ExitCodeRow{"other", "the exit code of the worker that failed first, or 128+n if signal n killed it"},
};

struct OfWorkerEnd {
    // A worker that exited 0 may still be the cause, e.g. because a file could not be written. Its code is never 0.
    int operator()(const Exited& end) const { return (end.code & 0xff) != 0 ? end.code & 0xff : 1; }
    int operator()(const Signaled& end) const { return exit_codes::signal_base + end.signal; }
    int operator()(const NotStarted& end) const {
        return end.error_number == ENOENT || end.error_number == ENOTDIR ? exit_codes::not_found
                                                                         : exit_codes::not_executable;
    }
};

struct OfEnding {
    int operator()(const agent::JobSucceeded&) const { return exit_codes::success; }
    int operator()(const agent::JobFailed& end) const {
        if (end.report.outcome == native::JobOutcome::crash_loop) return exit_codes::never_again;
        const auto& first = end.report.verdict.first;
        if (!first) return 1;
        if (first->kind == FailureKind::node_lost) return exit_codes::retry;
        return std::visit(OfWorkerEnd{}, first->end);
    }
    int operator()(const agent::Cancelled& end) const { return exit_codes::signal_base + end.signal; }
    int operator()(const agent::NoRendezvous&) const { return exit_codes::retry; }
    int operator()(const agent::JoinRefused&) const { return exit_codes::configuration; }
    int operator()(const agent::SetUpFailed&) const { return exit_codes::configuration; }
    int operator()(const agent::Drained&) const { return exit_codes::saved_and_left; }
    int operator()(const agent::AgentFailed&) const { return exit_codes::internal; }
};

}  // namespace

std::span<const ExitCodeRow> exit_code_table() {
    return exit_code_rows;
}

int exit_code(int code, ExitCodeStyle style) {
    if (style == ExitCodeStyle::muster || code == exit_codes::success || code == exit_codes::usage) return code;
    return 1;
}

int exit_code(const agent::Ending& ending, ExitCodeStyle style, std::string_view unsaved) {
    int code = std::visit(OfEnding{}, ending);
    if (code == exit_codes::success && !unsaved.empty()) code = exit_codes::internal;
    // With torchrun's codes a worker's own exit code 2 is a failure like any other.
    if (style == ExitCodeStyle::torchrun) return code == exit_codes::success ? 0 : 1;
    return code;
}

}  // namespace muster::launcher
