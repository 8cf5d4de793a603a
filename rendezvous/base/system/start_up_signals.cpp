#include "rendezvous/base/system/start_up_signals.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "rendezvous/base/journal.h"

namespace muster {

namespace {

struct Known {
    int number;
    const char* name;
};
constexpr Known known_signals[] = {{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},
                                   {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"},
                                   {SIGXCPU, "SIGXCPU"}};
constexpr int exit_code_base = 128;

const StartUpAnswer* own_answer = nullptr;
bool needs_time = true;

/// A line of at most 255 bytes, made without memory from the heap.
class Line {
  public:
    void add(const char* text) {
        for (; *text != '\0' && size_ < sizeof bytes_; ++text) bytes_[size_++] = *text;
    }
    /// The last `digits` of a number, and the text behind it.
    void add(unsigned number, int digits, const char* text) {
        char bytes[5] = {};
        for (int i = digits; i-- > 0; number /= 10) bytes[i] = static_cast<char>('0' + number % 10);
        add(bytes);
        add(text);
    }
    void write() const {
        std::size_t written = 0;
        while (written < size_) {
            const auto count = ::write(STDERR_FILENO, bytes_ + written, size_ - written);
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) return;
            written += static_cast<std::size_t>(count);
        }
    }

  private:
    char bytes_[255];
    std::size_t size_ = 0;
};

/// Without the C library's calendar, which takes locks.
void add_utc(Line& line) {
    using namespace std::chrono;
    const auto now = floor<milliseconds>(system_clock::now());
    const year_month_day date(floor<days>(now));
    const hh_mm_ss time(now - floor<days>(now));
    line.add(static_cast<unsigned>(static_cast<int>(date.year())), 4, "-");
    line.add(static_cast<unsigned>(date.month()), 2, "-");
    line.add(static_cast<unsigned>(date.day()), 2, "T");
    line.add(static_cast<unsigned>(time.hours().count()), 2, ":");
    line.add(static_cast<unsigned>(time.minutes().count()), 2, ":");
    line.add(static_cast<unsigned>(time.seconds().count()), 2, ".");
    line.add(static_cast<unsigned>(time.subseconds().count()), 3, "+00:00 ");
}

/// Runs in a signal handler, so it calls only functions that are safe there. The default action is back already: the
/// same signal, sent again, ends a process whose stderr takes nothing.
void answer(int number) {
    Line line;
    if (needs_time) add_utc(line);
    line.add(own_answer->program);
    line.add(": ");
    for (const auto& one : known_signals)
        if (one.number == number) line.add(one.name);
    line.add(" during start-up; ");
    line.add(own_answer->sentence);
    line.add("\n");
    line.write();
    if (own_answer->end == StartUpEnd::exit_code) ::_exit(exit_code_base + number);
    ::raise(number);
}

}  // namespace

void answer_start_up_signals(const StartUpAnswer& given) {
    own_answer = &given;
    for (const auto& one : known_signals) {
        struct sigaction at_start {};
        if (::sigaction(one.number, nullptr, &at_start) != 0 || at_start.sa_handler == SIG_IGN) continue;
        struct sigaction action {};
        action.sa_handler = answer;
        action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_NODEFER;
        for (const auto& other : known_signals)
            if (other.number != one.number) ::sigaddset(&action.sa_mask, other.number);
        ::sigaction(one.number, &action, nullptr);
    }
    needs_time = !has_own_time(STDERR_FILENO);
}

void end_start_up_signals() {
    for (const auto& one : known_signals) {
        struct sigaction now {};
        if (::sigaction(one.number, nullptr, &now) == 0 && now.sa_handler == answer) ::signal(one.number, SIG_DFL);
    }
}

}  // namespace muster
