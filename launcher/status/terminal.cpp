#include "launcher/status/terminal.h"

#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::array handled{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
/// The bytes of one key come together, but a network may part them.
constexpr auto sequence_limit = 50ms;
/// Signals that have come since wait() looked. Handlers run only inside ppoll, which loses none, and write_all().
volatile std::sig_atomic_t end_signal = 0, stop_asked = 0, draw_asked = 0;

void note_signal(int signal) {
    if (signal == SIGTSTP)
        stop_asked = 1;
    else if (signal == SIGCONT || signal == SIGWINCH)
        draw_asked = 1;
    else
        end_signal = signal;
}

}  // namespace

bool may_color(int fd) {
    const char* const no_color = std::getenv("NO_COLOR");
    const char* const term = std::getenv("TERM");
    const bool refused = no_color != nullptr && *no_color != '\0';
    return ::isatty(fd) == 1 && !refused && term != nullptr && std::string_view(term) != "dumb";
}

Terminal::Terminal() {
    end_signal = 0;
    stop_asked = 0;
    draw_asked = 0;
    sigset_t ours;
    ::sigemptyset(&ours);
    for (const int signal : handled) ::sigaddset(&ours, signal);
    handle_signals(note_signal);
    ::pthread_sigmask(SIG_BLOCK, &ours, &before_);
    has_modes_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &modes_) == 0;
    enter();
}

Terminal::~Terminal() {
    leave();
    handle_signals(SIG_DFL);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Terminal::handle_signals(void (*action)(int)) {
    struct sigaction with {};
    with.sa_handler = action;
    for (const int signal : handled) ::sigaction(signal, &with, nullptr);
}

void Terminal::enter() {
    if (has_modes_) {
        auto modes = modes_;
        modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        ::tcsetattr(STDIN_FILENO, TCSANOW, &modes);
    }
    write_all("\033[?1049h\033[?25l");
    drawn_ = {};
}

void Terminal::leave() {
    constexpr std::string_view whole = "\033[m\033[?25h\033[?1049l";
    auto* const stopping = std::signal(SIGTTOU, SIG_IGN);  // Its default stops a process of the background.
    write_all(whole);                                      // Nothing after a signal that ends this process.
    const int ended = std::exchange(end_signal, 0);
    if (ended != 0) {  // The terminal may take nothing, as after Ctrl-S.
        termios before{};
        ::tcgetattr(STDOUT_FILENO, &before);
        auto modes = before;
        modes.c_iflag &= ~static_cast<tcflag_t>(IXON);  // Ends Ctrl-S.
        ::tcsetattr(STDOUT_FILENO, TCSANOW, &modes);
        ::tcflush(STDOUT_FILENO, TCOFLUSH);
        write_all(whole);
        ::tcsetattr(STDOUT_FILENO, TCSANOW, &before);
        end_signal = ended;
    }
    if (has_modes_) ::tcsetattr(STDIN_FILENO, TCSANOW, &modes_);
    std::signal(SIGTTOU, stopping);
}

void Terminal::write_all(std::string_view text) {
    sigset_t ours;
    ::pthread_sigmask(SIG_SETMASK, &before_, &ours);
    // A signal between this look and the wait in write() is seen at the next one: it is a matter of a few instructions.
    while (!text.empty() && end_signal == 0) {
        const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno == EAGAIN) {  // another program has made the terminal non-blocking, for all
            pollfd out{STDOUT_FILENO, POLLOUT, 0};
            ::poll(&out, 1, -1);
            continue;
        }
        // The terminal is gone. A process that ignores hang-ups must see it, too.
        if (written < 0 && errno != EINTR) end_signal = SIGHUP;
        if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    }
    ::pthread_sigmask(SIG_SETMASK, &ours, nullptr);
}

StatusSize Terminal::size() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
    return {size.ws_col, size.ws_row};
}

void Terminal::draw(Screen screen) {
    write_all(screen_update(drawn_, screen, may_color(STDOUT_FILENO)));
    drawn_ = std::move(screen);
}

void Terminal::suspend() {
    leave();
    ::kill(::getpid(), SIGSTOP);
    enter();
    draw_asked = 1;
}

void Terminal::run(const char* program, const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    sigset_t defaults;
    ::sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGQUIT}) ::sigaddset(&defaults, signal);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    ::posix_spawnattr_setsigmask(&attributes, &before_);
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    const auto ignore_keys = [] {
        for (const int signal : {SIGINT, SIGQUIT, SIGTSTP}) std::signal(signal, SIG_IGN);
    };
    leave();
    ignore_keys();
    pid_t process = 0;
    const int trouble = ::posix_spawn(&process, program, nullptr, &attributes, arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    if (trouble != 0) write_all(cat(words.front(), " cannot be started: ", errno_text(trouble), "\n"));
    if (trouble != 0 || has_ended_by_itself(process)) wait_for_enter();
    ignore_keys();  // Signals that are blocked stay pending, until they are ignored once more.
    handle_signals(note_signal);
    enter();
}

bool Terminal::has_ended_by_itself(pid_t program) {
    constexpr timespec pause{0, 50'000'000};
    int status = 0;
    while (::waitpid(program, &status, WNOHANG) == 0) {
        if (end_signal != 0) ::kill(program, SIGKILL);  // It has nothing to lose.
        ::ppoll(nullptr, 0, &pause, &before_);
    }
    return !WIFSIGNALED(status);
}

void Terminal::wait_for_enter() {
    if (has_modes_) ::tcflush(STDIN_FILENO, TCIFLUSH);  // An Enter before this is no answer.
    write_all("-- Enter: back --\n");
    pollfd key{STDIN_FILENO, POLLIN, 0};
    for (char byte = 0; end_signal == 0 && byte != '\n';)
        if (::ppoll(&key, 1, nullptr, &before_) > 0 && ::read(STDIN_FILENO, &byte, 1) != 1) return;
}

bool Terminal::take_key() {
    const auto key = keys_.next();
    if (key) key_ = *key;
    return key.has_value();
}

void Terminal::read_keys() {
    char bytes[256];
    const auto got = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got > 0) keys_.add(std::string_view(bytes, static_cast<std::size_t>(got)));
    if (got <= 0) has_modes_ = has_modes_ && got < 0 && (errno == EINTR || errno == EAGAIN);  // stdin has ended.
}

Terminal::Wait Terminal::wait(Instant deadline, int news) {
    for (;;) {
        if (std::exchange(stop_asked, 0) != 0) suspend();
        if (end_signal != 0) {
            ended_by_ = end_signal;
            return Wait::quit;
        }
        if (std::exchange(draw_asked, 0) != 0) {
            forget();
            return Wait::redraw;
        }
        if (take_key()) return Wait::key;
        const auto now = std::chrono::steady_clock::now();
        const auto until = keys_.has_beginning() ? std::min(deadline, now + sequence_limit) : deadline;
        // Signals and keys are seen only in ppoll, so a deadline that has passed waits 0 s in it.
        const auto left = std::max(Duration(until - now), Duration::zero());
        const auto whole = std::chrono::floor<std::chrono::seconds>(left);
        const timespec time{.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
        std::array<pollfd, 2> sources{pollfd{has_modes_ ? STDIN_FILENO : -1, POLLIN, 0}, pollfd{news, POLLIN, 0}};
        const int ready = ::ppoll(sources.data(), sources.size(), &time, &before_);
        if (ready < 0) continue;
        if (sources[0].revents != 0) {
            read_keys();
        } else if (sources[1].revents != 0) {
            return Wait::news;
        } else if (keys_.has_beginning()) {
            keys_.end_sequence();
        } else {
            return Wait::elapsed;
        }
    }
}

}  // namespace muster::launcher
