#include "rendezvous/wire/native/report.h"

#include <algorithm>
#include <string>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::native {

namespace {

/// What a failure takes beside its texts of variable length; generous.
constexpr std::size_t fixed_bytes = 900;
constexpr std::size_t short_message_bytes = 128;
constexpr std::size_t short_cause_bytes = 96;

void keep_back(std::string& text, std::size_t max) {
    text = back_of(text, max);
}

/// As it is encoded, so that its size is known.
void clean(std::string& text) {
    if (!is_printable(text)) text = printable(text);
}

/// The end of stderr as it can be printed; where that took escapes, it says what they are. Earlier bytes do not count:
/// they may be half a character, and few readers see them.
void clean_tail(std::string& tail) {
    constexpr std::size_t read_bytes = 2'048;
    const bool is_text = is_utf8(back_of(tail, read_bytes));
    clean(tail);
    if (is_text) return;
    if (!tail.ends_with('\n')) tail += '\n';
    tail +=
        "(\\xNN is a byte that is not UTF-8: the program writes another encoding, or binary data; set PYTHONUTF8=1 for "
        "Python, else LC_ALL=C.UTF-8)\n";
}

/// All but the tail.
std::size_t cost(const Failure& failure) {
    return fixed_bytes + failure.message.size() + failure.error_file.size() + failure.log_directory.size() +
           failure.cause.text.size() + failure.cause.core_file.size();
}

}  // namespace

void fit_report(std::vector<Failure>& failures) {
    if (failures.size() > failures_max) failures.resize(failures_max);
    // Room for the shortest form of every failure is set aside first.
    constexpr auto shortest = fixed_bytes + short_message_bytes + short_cause_bytes;
    // What else a report says: its numbers, and where its idle workers stood.
    constexpr auto others = 4096 + activities_max * (64 + 2 * activity_text_max + activity_place_max);
    static_assert(failures_max * shortest < agent_frame_bytes_max - others);
    std::size_t spare = agent_frame_bytes_max - others - failures.size() * shortest;
    for (auto& failure : failures) {
        for (auto* text : {&failure.message, &failure.error_file, &failure.log_directory, &failure.cause.text,
                           &failure.cause.core_file})
            clean(*text);
        clean_tail(failure.stderr_tail);
        const auto allowed = shortest + spare;
        keep_back(failure.message, failure_message_bytes_max);
        if (cost(failure) > allowed) {
            keep_back(failure.message, short_message_bytes);
            failure.error_file.clear();
            failure.log_directory.clear();
            failure.cause.text = front_of(failure.cause.text, short_cause_bytes);
            failure.cause.core_file.clear();
        }
        keep_back(failure.stderr_tail, std::min(stderr_tail_bytes_max, allowed - cost(failure)));
        const auto used = cost(failure) + failure.stderr_tail.size();
        spare -= used > shortest ? used - shortest : 0;
    }
}

}  // namespace muster::native
