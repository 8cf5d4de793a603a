#include "rendezvous/wire/native/worker_end.h"

#include <array>
#include <string_view>
#include <system_error>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

/// Linux's numbers, which are the same on x86-64 and arm64; index = number.
constexpr std::array<std::string_view, 32> signal_names{
    "",          "SIGHUP",  "SIGINT",    "SIGQUIT", "SIGILL",   "SIGTRAP", "SIGABRT", "SIGBUS",
    "SIGFPE",    "SIGKILL", "SIGUSR1",   "SIGSEGV", "SIGUSR2",  "SIGPIPE", "SIGALRM", "SIGTERM",
    "SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",  "SIGTTIN", "SIGTTOU", "SIGURG",
    "SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO",   "SIGPWR",  "SIGSYS"};

bool has_name(int signal) {
    return signal > 0 && static_cast<std::size_t>(signal) < signal_names.size();
}

struct Words {
    std::string operator()(const Exited& end) const { return cat("exit code ", end.code); }
    std::string operator()(const Signaled& end) const {
        const auto known = has_name(end.signal) ? cat(" (", signal_name(end.signal), ")") : std::string{};
        return cat("signal ", end.signal, known, end.core_dumped ? ", core dumped" : "");
    }
    std::string operator()(const NotStarted& end) const {
        return cat("not started: ", end.stage, ": ", std::generic_category().message(end.error_number));
    }
};

}  // namespace

bool saved_and_left(const WorkerEnd& end) {
    const auto* exited = std::get_if<Exited>(&end);
    return exited != nullptr && exited->code == saved_and_left_code;
}

bool succeeded(const WorkerEnd& end) {
    const auto* exited = std::get_if<Exited>(&end);
    return exited != nullptr && exited->code == 0;
}

std::string describe(const WorkerEnd& end) {
    return std::visit(Words{}, end);
}

std::string signal_name(int signal) {
    if (!has_name(signal)) return cat("signal ", signal);
    return std::string(signal_names[static_cast<std::size_t>(signal)]);
}

}  // namespace muster
