#include "launcher/commands/log_show.h"

#include <cstdio>
#include <ctime>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using agent::LineFold;
using agent::LogLine;

Instant instant(std::int64_t time_ns) {
    return Instant(std::chrono::nanoseconds(time_ns));
}

/// "18:02:11.482", in local time.
std::string clock_text(std::int64_t time_ns) {
    if (time_ns == 0) return "--:--:--.---";
    const auto seconds = static_cast<std::time_t>(time_ns / 1'000'000'000);
    std::tm parts{};
    char text[32];
    ::localtime_r(&seconds, &parts);
    std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec,
                  static_cast<int>(time_ns / 1'000'000 % 1000));
    return text;
}

}  // namespace

void LogShow::add(FileId file, const LogLine& line, std::size_t rank_count, Order order) {
    if (form_ == Form::folded && order == Order::kept) return fold(file, line, rank_count);
    if (form_ == Form::folded) text_ += fold_.take();
    if (order == Order::late) text_ += "~";
    if (form_ == Form::lines_with_times) text_ += cat(clock_text(line.time_ns), " ");
    text_ += cat("[", line.owner->rank, "]: ", line.text, "\n");
}

void LogShow::fold(FileId file, const LogLine& line, std::size_t rank_count) {
    const auto time = instant(line.time_ns);
    fold_.show_due(time);
    auto& folded = folded_[file];
    if (folded.owner != line.owner) {
        if (folded.owner) fold_.close(folded.id, time);
        folded.owner = line.owner;
        folded.id =
            fold_.open(line.owner->rank, static_cast<std::uint32_t>(rank_count), cat("[", line.owner->rank, "]: "));
    }
    const auto ending = line.is_bar ? LineFold::Ending::carriage_return : LineFold::Ending::newline;
    fold_.add(folded.id, line.text, ending, time);
}

void LogShow::show_due(std::int64_t now_ns) {
    if (form_ == Form::folded) fold_.show_due(instant(now_ns));
}

}  // namespace muster::launcher
