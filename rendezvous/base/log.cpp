#include "rendezvous/base/log.h"

#include <errno.h>
#include <spdlog/details/os.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "rendezvous/base/console_writer.h"
#include "rendezvous/base/journal.h"
#include "rendezvous/base/log_listener.h"
#include "rendezvous/base/text/printable.h"

namespace muster {

namespace {

/// spdlog's levels begin one earlier, with trace.
spdlog::level::level_enum native(LogLevel level) {
    static_assert(spdlog::level::debug == 1 && spdlog::level::err == 4);
    return static_cast<spdlog::level::level_enum>(static_cast<int>(level) + 1);
}

/// ISO 8601, because a line of one host is read beside those of others.
constexpr std::string_view time_pattern = "%Y-%m-%dT%H:%M:%S.%e%z ";

/// What the log may keep while its stream does not take it: some 10,000 lines.
constexpr ConsoleWriter::Limits log_limits{.buffer_max_bytes = 1 << 20, .patience = 0ns};

std::atomic<ConsoleWriter*> writer{nullptr};  // never destroyed: a line may be logged from any destructor

void write_out(std::string_view text) {
    if (auto* const thread = writer.load()) return thread->add(text);
    while (!text.empty()) {
        const auto written = ::write(STDERR_FILENO, text.data(), text.size());
        if (written < 0 && errno != EINTR) return;  // nobody is left who could be told
        if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    }
}

struct LevelRow {
    std::string_view color;
    JournalPriority priority;
};

const LevelRow& row_of(spdlog::level::level_enum level) {
    static constexpr LevelRow rows[] = {{"\033[36m", JournalPriority::debug},
                                        {"\033[32m", JournalPriority::info},
                                        {"\033[33m\033[1m", JournalPriority::warning},
                                        {"\033[31m\033[1m", JournalPriority::error}};
    return rows[std::clamp<int>(level, spdlog::level::debug, spdlog::level::err) - spdlog::level::debug];
}

/// spdlog's own sinks write where they stand; this one lets write_out decide who does.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
  private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        // Workers, and peers, have a say in what is logged.
        const auto payload = printable_line({message.payload.data(), message.payload.size()});
        // The journal knows the time, the program and the level by itself.
        if (journal_is_open()) return write_journal(row_of(message.level).priority, payload);
        auto clean = message;
        clean.payload = payload;
        line_.clear();
        formatter_->format(clean, line_);
        const std::string_view line(line_.data(), line_.size());
        if (!colored_ || clean.color_range_end <= clean.color_range_start) return write_out(line);
        write_out(cat(line.substr(0, clean.color_range_start), row_of(clean.level).color,
                      line.substr(clean.color_range_start, clean.color_range_end - clean.color_range_start), "\033[m",
                      line.substr(clean.color_range_end)));
    }
    void flush_() override {}

    const bool colored_ = spdlog::details::os::in_terminal(stderr) && spdlog::details::os::is_color_terminal();
    spdlog::memory_buf_t line_;
};

std::mutex listener_mutex;
std::function<void(std::string_view)> listener;
std::atomic<bool> has_listener = false;
thread_local bool is_listening = false;

void tell_listener(std::string_view text) {
    if (!has_listener || std::exchange(is_listening, true)) return;
    {
        const std::lock_guard lock(listener_mutex);
        if (listener) listener(text);
    }
    is_listening = false;
}

spdlog::logger& logger() {
    // Made on first use and never destroyed, so that a line may be logged from any destructor.
    static spdlog::logger* const instance = [] {
        auto* made = new spdlog::logger("muster", std::make_shared<StderrSink>());
        made->set_pattern(cat(time_pattern, "%n %^%l%$ %v"));
        made->set_level(spdlog::level::warn);
        return made;
    }();
    return *instance;
}

}  // namespace

void set_log_level(LogLevel level) {
    logger().set_level(native(level));
}

bool parse_log_level(std::string_view text, LogLevel& level) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == "debug" || lower == "notset")
        level = LogLevel::debug;
    else if (lower == "info")
        level = LogLevel::info;
    else if (lower == "warning" || lower == "warn")
        level = LogLevel::warning;
    else if (lower == "error" || lower == "critical" || lower == "fatal")
        level = LogLevel::error;
    else
        return false;
    return true;
}

void set_log_name(std::string_view name) {
    logger().set_pattern(cat(time_pattern, name, " %^%l%$ %v"));
}

void log_event(LogLevel level, std::string_view text) {
    logger().log(native(level), spdlog::string_view_t(text.data(), text.size()));
}

void log_line(LogLevel level, std::string_view line) {
    log_event(level, line);
    if (level >= LogLevel::info) tell_listener(line);
}

void set_log_listener(std::function<void(std::string_view)> wanted) {
    const std::lock_guard lock(listener_mutex);
    listener = std::move(wanted);
    has_listener = listener != nullptr;
}

std::string line_time(int fd) {
    if (has_own_time(fd)) return {};
    spdlog::memory_buf_t text;
    spdlog::pattern_formatter(std::string(time_pattern), spdlog::pattern_time_type::local, "")
        .format(spdlog::details::log_msg({}, spdlog::level::off, {}), text);
    return {text.data(), text.size()};
}

void print_notice(std::string_view text) {
    if (text.empty()) return;
    tell_listener(text.substr(0, text.size() - (text.ends_with('\n') ? 1 : 0)));
    print_event(text);
}

void print_event(std::string_view text) {
    const auto clean = printable(text);
    const bool to_journal = journal_is_open();
    const auto time = to_journal ? std::string() : line_time(STDERR_FILENO);
    std::string lines;
    for (const auto line :
         split(std::string_view(clean).substr(0, clean.size() - (clean.ends_with('\n') ? 1 : 0)), '\n'))
        if (!to_journal)
            lines += cat(time, line, '\n');
        else if (!line.empty())
            write_journal(JournalPriority::notice, line);
    write_out(lines);
}

void write_log_on_thread() {
    write_journal_on_thread();
    if (writer.load() == nullptr) writer = new ConsoleWriter(STDERR_FILENO, "stderr", log_limits);
}

bool flush_log(Duration limit) {
    const bool told = flush_journal(limit);
    auto* const thread = writer.load();
    return (thread == nullptr || thread->flush(limit)) && told;
}

bool log_enabled(LogLevel level) {
    return logger().should_log(native(level)) || (level >= LogLevel::info && has_listener);
}

}  // namespace muster
