#include "agent/diagnosis/error_file.h"

#include <nlohmann/json.hpp>

#include "agent/diagnosis/json_members.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using nlohmann::json;

constexpr std::size_t message_bytes_max = 16 * 1024;  // as much as a report carries (native::failure_message_bytes_max)
constexpr std::size_t quoted_bytes_max = 200;
constexpr int nesting_max = 16;

/// torch writes it as a string in one form and as a number in the other.
std::int64_t timestamp(const json& object) {
    std::int64_t seconds = 0;
    if (parse_number(text_of(object, "timestamp"), seconds)) return seconds;
    return integer_of(object, "timestamp").value_or(0);
}

std::string keep_end(std::string text) {
    if (text.size() > message_bytes_max) text.erase(0, text.size() - message_bytes_max);
    return text;
}

WorkerError unreadable(std::string_view text) {
    return {cat("unreadable error file: ", text.substr(0, quoted_bytes_max)), 0};
}

/// Discarded if it is no JSON, is too long, or is nested too deeply.
json parse(std::string_view text) {
    if (text.size() > error_file_bytes_max) return json(json::value_t::discarded);
    bool too_deep = false;
    const auto watch = [&too_deep](int depth, json::parse_event_t event, json&) {
        const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
        too_deep = too_deep || (opens && depth >= nesting_max);
        return !too_deep;
    };
    auto parsed = json::parse(text, watch, /*allow_exceptions=*/false);
    return too_deep ? json(json::value_t::discarded) : parsed;
}

}  // namespace

WorkerError parse_error_file(std::string_view text) {
    const json file = parse(text);
    const json* message = member_of(file, "message");
    if (message == nullptr) return unreadable(text);
    if (message->is_string()) return {keep_end(message->get<std::string>()), timestamp(file)};
    const json* extra = member_of(*message, "extraInfo");
    WorkerError error;
    if (extra != nullptr) {
        error.message = text_of(*extra, "py_callstack");
        error.timestamp_s = timestamp(*extra);
    }
    // A traceback mostly ends with the message. It need not: a program may have put its own words there.
    const auto words = text_of(*message, "message");
    if (error.message.find(trim(words)) == std::string::npos) {
        if (!error.message.empty() && !error.message.ends_with('\n')) error.message += '\n';
        error.message += words;
    }
    if (error.message.empty()) return unreadable(text);
    error.message = keep_end(std::move(error.message));
    return error;
}

std::string launcher_error_file(std::string_view workers, const Failure& first, std::string_view report) {
    json file = parse(workers);
    const json* message = member_of(file, "message");
    if (message == nullptr || !(message->is_object() || message->is_string()))
        file = {{"message", {{"message", report}, {"extraInfo", {{"timestamp", cat(first.wall_time_s)}}}}}};
    if (file["message"].is_object()) {
        if (const auto* exited = std::get_if<Exited>(&first.end)) file["message"]["errorCode"] = exited->code;
        if (const auto* signaled = std::get_if<Signaled>(&first.end)) file["message"]["errorCode"] = -signaled->signal;
    }
    return file.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

}  // namespace muster::agent
