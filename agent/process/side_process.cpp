#include "agent/process/side_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "agent/process/process_tree.h"
#include "agent/supervision/worker_environment.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// What posix_spawn wants to know, freed with it.
struct SpawnTerms {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;

    SpawnTerms() {
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawnattr_init(&attributes);
        sigset_t blocked, all;
        ::sigemptyset(&blocked);
        // It is in the terminal's background: a read of that fails, and `stty tostop` does not stop one that writes.
        for (const int stop : {SIGTTIN, SIGTTOU}) ::sigaddset(&blocked, stop);
        ::sigfillset(&all);
        ::posix_spawnattr_setsigmask(&attributes, &blocked);
        ::posix_spawnattr_setsigdefault(&attributes, &all);
        ::posix_spawnattr_setpgroup(&attributes, 0);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    ~SpawnTerms() {
        ::posix_spawn_file_actions_destroy(&actions);
        ::posix_spawnattr_destroy(&attributes);
    }
    SpawnTerms& operator=(SpawnTerms&&) = delete;
};

/// This process hides its variables if it has a secret. Other processes of the user can read those of a child.
std::vector<char*> childs_variables() {
    std::vector<char*> variables;
    for (char** one = environ; *one != nullptr; ++one) {
        const std::string_view variable(*one);
        const auto name = variable.substr(0, variable.find('='));
        if (std::ranges::find(agents_own_variables, name) == agents_own_variables.end()) variables.push_back(*one);
    }
    variables.push_back(nullptr);
    return variables;
}

/// The read end of a pipe that holds `input` and ends behind it.
Result<FileDescriptor> filled_pipe(std::string_view input, std::string_view reader) {
    if (input.size() > side_input_bytes_max)
        return Error{Errc::limit_exceeded, cat("the input of ", reader, " has ", input.size(), " bytes")};
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return error_from_errno(errno, cat("make a pipe for ", reader));
    FileDescriptor read_end(ends[0]);
    const FileDescriptor write_end(ends[1]);
    if (::write(write_end.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size()))
        return error_from_errno(errno, cat("write to the pipe of ", reader));
    return read_end;
}

}  // namespace

std::string side_program(const std::string& name) {
    std::error_code failure;
    const auto own = std::filesystem::read_symlink("/proc/self/exe", failure);
    if (failure) return name;
    for (const char* const folder : {".", MUSTER_LIBEXEC_FROM_BIN}) {
        const auto path = (own.parent_path() / folder / name).lexically_normal();
        if (std::filesystem::exists(path, failure)) return path.string();
    }
    return name;
}

Result<SideProcess> start_side_process(std::vector<std::string> words, const std::vector<int>& inherited,
                                       std::string_view input) {
    const auto name = std::string(base_name(words[0]));
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return error_from_errno(errno, cat("make a pipe for ", name));
    SideProcess child;
    child.output = FileDescriptor(ends[0]);
    const FileDescriptor childs_end(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const auto in = input.empty() ? FileDescriptor() : MUSTER_TRY(filled_pipe(input, name));
    SpawnTerms terms;
    if (in.valid())
        ::posix_spawn_file_actions_adddup2(&terms.actions, in.get(), STDIN_FILENO);
    else
        ::posix_spawn_file_actions_addopen(&terms.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&terms.actions, childs_end.get(), STDOUT_FILENO);
    // Onto itself: that takes the close-on-exec flag away, in the child alone.
    for (const int memory : inherited) ::posix_spawn_file_actions_adddup2(&terms.actions, memory, memory);
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (const int failure = ::posix_spawnp(&child.pid, words[0].c_str(), &terms.actions, &terms.attributes,
                                           arguments.data(), childs_variables().data())) {
        return error_from_shortage(failure, cat("start ", words[0]));
    }
    child.ended = open_pidfd(child.pid);
    if (child.ended.valid()) return child;
    auto refused = error_from_errno(errno, cat("watch ", name));
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    return refused;
}

}  // namespace muster::agent
