#include "rendezvous/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <memory>

namespace muster {

namespace {

spdlog::level::level_enum native(LogLevel level) {
    switch (level) {
        case LogLevel::debug: return spdlog::level::debug;
        case LogLevel::info: return spdlog::level::info;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::error: return spdlog::level::err;
    }
    return spdlog::level::info;
}

spdlog::logger& logger() {
    // Made on first use and never destroyed, so that a line may be logged from any destructor.
    static spdlog::logger* const instance = [] {
        auto* made = new spdlog::logger("muster", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
        made->set_pattern("%Y-%m-%d %H:%M:%S.%e %n %^%l%$ %v");
        made->set_level(spdlog::level::warn);
        made->flush_on(spdlog::level::debug);
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
    logger().set_pattern(cat("%Y-%m-%d %H:%M:%S.%e ", name, " %^%l%$ %v"));
}

void log_line(LogLevel level, std::string_view line) {
    logger().log(native(level), spdlog::string_view_t(line.data(), line.size()));
}

bool log_enabled(LogLevel level) {
    return logger().should_log(native(level));
}

}  // namespace muster
