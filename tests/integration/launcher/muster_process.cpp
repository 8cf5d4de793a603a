#include "tests/integration/launcher/muster_process.h"
#include "tests/support/end_with_test.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <random>
#include <stdexcept>

namespace muster::test {

namespace {

using Clock = std::chrono::steady_clock;

/// Takes the port among all tests until this process ends, as tests/support/ports.py does.
bool claim(int port) {
    const std::string text = "muster-test-port-" + std::to_string(port);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    text.copy(name.sun_path + 1, text.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);  // stays open
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> list;
    for (auto& word : words) list.push_back(word.data());
    list.push_back(nullptr);
    return list;
}

std::vector<std::string> environment_of(const MusterOptions& options, const std::string& temporary) {
    auto variables = options.environment;
    variables.emplace("TMPDIR", temporary);
    variables.emplace("HOME", temporary);  // where a key is made
    if (const char* path = std::getenv("PATH"); path != nullptr) variables.emplace("PATH", path);
    std::vector<std::string> list;
    for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
    return list;
}

}  // namespace

MusterProcess::MusterProcess(const std::vector<std::string>& words, const MusterOptions& options) {
    std::vector<std::string> command{MUSTER_BINARY};
    command.insert(command.end(), words.begin(), words.end());
    auto variables = environment_of(options, temporary_.string());
    const auto argv = pointers(command);
    const auto envp = pointers(variables);
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    pid_ = test::fork_with_test();
    if (pid_ == 0) {
        test::reset_signals();
        if (options.close_streams) {
            for (int fd = 0; fd <= 2; ++fd) ::close(fd);
        } else {
            ::dup2(::open("/dev/null", O_RDONLY), 0);
            ::dup2(out[1], 1);
            ::dup2(err[1], 2);
        }
        const rlimit files{options.open_files_max, options.open_files_max};
        if (options.open_files_max != 0) ::setrlimit(RLIMIT_NOFILE, &files);
        if (options.ignored_signal != 0) ::signal(options.ignored_signal, SIG_IGN);
        if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) ::_exit(99);
        ::execve(argv[0], argv.data(), envp.data());
        ::_exit(98);
    }
    ::close(out[1]);
    ::close(err[1]);
    out_fd_ = out[0];
    err_fd_ = err[0];
    if (options.close_stdout_reader) {
        ::close(out_fd_);
        out_fd_ = -1;
    }
}

MusterProcess::~MusterProcess() {
    if (!reaped_) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    if (out_fd_ >= 0) ::close(out_fd_);
    if (err_fd_ >= 0) ::close(err_fd_);
}

bool MusterProcess::read_some(std::chrono::milliseconds limit) {
    std::array<pollfd, 2> waited{pollfd{out_fd_, POLLIN, 0}, pollfd{err_fd_, POLLIN, 0}};
    if (out_fd_ < 0 && err_fd_ < 0) return false;
    if (::poll(waited.data(), waited.size(), static_cast<int>(limit.count())) == 0) return false;
    for (auto& one : waited) {
        if (one.revents == 0) continue;
        std::array<char, 4096> piece{};
        const auto size = ::read(one.fd, piece.data(), piece.size());
        auto& fd = one.fd == out_fd_ ? out_fd_ : err_fd_;
        if (size > 0) {
            (one.fd == out_fd_ ? out_ : err_).append(piece.data(), static_cast<std::size_t>(size));
        } else {
            ::close(fd);
            fd = -1;
        }
    }
    return true;
}

int MusterProcess::wait(std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    while (!reaped_) {
        int status = 0;
        if (::waitpid(pid_, &status, WNOHANG) == pid_) {
            reaped_ = true;
            code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            break;
        }
        if (Clock::now() >= until) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
            reaped_ = true;
            return code_ = -1;
        }
        if (!read_some(std::chrono::milliseconds(5))) ::poll(nullptr, 0, 2);
    }
    // What it wrote before its end is in the pipes; a grandchild that still holds them must not hold the test.
    while (read_some(std::chrono::milliseconds(0))) {
    }
    return code_;
}

bool MusterProcess::wait_for(const std::string& text, std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    for (;;) {
        if (out_.find(text) != std::string::npos || err_.find(text) != std::string::npos) return true;
        if (Clock::now() >= until || (out_fd_ < 0 && err_fd_ < 0)) return false;
        read_some(std::chrono::milliseconds(20));
    }
}

void MusterProcess::signal(int number) const {
    ::kill(pid_, number);
}

int free_port() {
    std::random_device random;
    for (int tries = 0; tries < 1000; ++tries) {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_port = htons(static_cast<std::uint16_t>(std::uniform_int_distribution(15'000, 29'300)(random)));
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool is_free = ::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
        ::close(fd);
        if (is_free && claim(ntohs(name.sin_port))) return ntohs(name.sin_port);
    }
    throw std::runtime_error("no free port");
}

}  // namespace muster::test
