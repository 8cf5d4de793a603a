#include "worker_runtime/pairs/pair_answer.h"

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// Before the first word; raise the number when the words change, or what rank 0 asks for, or the messages of a test.
/// Before 2 there was no number, 2 tested no groups, 3 no single networks, 5 told an MTU, and 6 sent groups no parts.
constexpr std::string_view version = "7:";
/// In a group, `why` may have a clause for each of 31 other ranks, and rank 0 collects it of all nodes.
constexpr std::size_t why_bytes_max = 300;

}  // namespace

std::string write_answer(const PairAnswer& answer) {
    const auto& result = answer.result;
    return cat(version, result.passed ? 1 : 0, ' ', result.latency_us, ' ', result.mbytes_per_s, ' ',
               result.link_mbytes_per_s, ' ', result.sees_losses ? 1 : 0, ' ', result.clock_ms, ' ', answer.wall_ms,
               ' ', front_of(result.why, why_bytes_max));
}

Result<PairAnswer> read_answer(std::string_view text) {
    PairAnswer answer;
    auto& result = answer.result;
    const auto words = split(text, ' ');
    if (!text.starts_with(version) || words.size() < 8 || !parse_number(words[1], result.latency_us) ||
        !parse_number(words[2], result.mbytes_per_s) || !parse_number(words[3], result.link_mbytes_per_s) ||
        !parse_number(words[5], result.clock_ms) || !parse_number(words[6], answer.wall_ms))
        return Error{Errc::unsupported, "its answer has another form; install the same build of muster on all nodes"};
    result.passed = words[0].substr(version.size()) == "1";
    result.sees_losses = words[4] == "1";
    std::size_t before = 0;
    for (std::size_t i = 0; i < 7; ++i) before += words[i].size() + 1;
    result.why = text.substr(before);
    return answer;
}

}  // namespace muster::runtime
