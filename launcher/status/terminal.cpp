#include "launcher/status/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::array handled{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
/// Signals that have come since wait() looked. Handlers run only inside ppoll, so nothing is lost.
volatile std::sig_atomic_t end_signal = 0, stop_asked = 0, draw_asked = 0;

void note_signal(int signal) {
    if (signal == SIGTSTP)
        stop_asked = 1;
    else if (signal == SIGCONT || signal == SIGWINCH)
        draw_asked = 1;
    else
        end_signal = signal;
}

void write_all(std::string_view text) {
    while (!text.empty()) {
        const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno != EINTR) return;  // The terminal is gone; SIGHUP follows.
        if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    }
}

std::string_view color_of(LineStyle style) {
    switch (style) {
        case LineStyle::heading: return "\033[1m";
        case LineStyle::good: return "\033[32m";
        case LineStyle::attention: return "\033[31m";
        case LineStyle::plain: break;
    }
    return {};
}

}  // namespace

std::string screen_update(const std::vector<StatusLine>& before, const std::vector<StatusLine>& after, std::size_t rows,
                          bool colored) {
    std::string out;
    const auto count = std::min(rows, std::max(before.size(), after.size()));
    for (std::size_t row = 0; row < count; ++row) {
        const auto old_line = row < before.size() ? before[row] : StatusLine{};
        const auto new_line = row < after.size() ? after[row] : StatusLine{};
        if (row < before.size() && old_line == new_line) continue;
        const auto color = colored ? color_of(new_line.style) : std::string_view();
        // The line is cleared before the text. After a full line the cursor stands on the last column, and clearing
        // would erase that character.
        out += cat("\033[", row + 1, ";1H\033[K", color, new_line.text, color.empty() ? "" : "\033[m");
    }
    // A terminal that knows synchronized updates shows all of it at once, and nothing flickers.
    return out.empty() ? out : cat("\033[?2026h", out, "\033[?2026l");
}

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
    struct sigaction action {};
    action.sa_handler = note_signal;
    for (const int signal : handled) {
        ::sigaddset(&ours, signal);
        ::sigaction(signal, &action, nullptr);
    }
    ::pthread_sigmask(SIG_BLOCK, &ours, &before_);
    has_modes_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &modes_) == 0;
    enter();
}

Terminal::~Terminal() {
    leave();
    for (const int signal : handled) std::signal(signal, SIG_DFL);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Terminal::enter() {
    if (has_modes_) {
        auto modes = modes_;
        modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        ::tcsetattr(STDIN_FILENO, TCSANOW, &modes);
    }
    write_all("\033[?1049h\033[?25l\033[2J");
    drawn_.clear();
}

void Terminal::leave() {
    write_all("\033[m\033[?25h\033[?1049l");
    if (has_modes_) ::tcsetattr(STDIN_FILENO, TCSANOW, &modes_);
}

StatusSize Terminal::size() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
    return {size.ws_col, size.ws_row};
}

void Terminal::draw(const std::vector<StatusLine>& lines) {
    write_all(screen_update(drawn_, lines, size().rows, may_color(STDOUT_FILENO)));
    drawn_ = lines;
}

void Terminal::suspend() {
    leave();
    ::kill(::getpid(), SIGSTOP);
    enter();
    draw_asked = 1;
}

Terminal::Wait Terminal::wait(Instant deadline) {
    for (;;) {
        if (std::exchange(stop_asked, 0) != 0) suspend();
        if (end_signal != 0) {
            ended_by_ = end_signal;
            return Wait::quit;
        }
        if (std::exchange(draw_asked, 0) != 0) {
            write_all("\033[2J");
            drawn_.clear();
            return Wait::redraw;
        }
        // Signals and keys are seen only in ppoll, so a deadline that has passed waits 0 s in it.
        const auto left = std::max(Duration(deadline - std::chrono::steady_clock::now()), Duration::zero());
        const auto whole = std::chrono::floor<std::chrono::seconds>(left);
        const timespec time{.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
        pollfd keys{has_modes_ ? STDIN_FILENO : -1, POLLIN, 0};
        const int ready = ::ppoll(&keys, 1, &time, &before_);
        if (ready == 0) return Wait::elapsed;
        if (ready < 0) continue;
        char key = 0;
        const auto got = ::read(STDIN_FILENO, &key, 1);
        if (got == 1 && key == 'q') return Wait::quit;
        if (got <= 0) has_modes_ = has_modes_ && errno == EINTR;  // stdin has ended.
    }
}

}  // namespace muster::launcher
