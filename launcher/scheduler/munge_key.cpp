#include "launcher/scheduler/munge_key.h"

#include <algorithm>
#include <array>
#include <optional>

#include "launcher/config/option_values.h"
#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t nonce_digits = 64;
constexpr std::string_view credential_begin = "MUNGE:";
constexpr std::int64_t munge_number_max = 0xffff'ffff;

/// munge.h's numbers of these ends.
constexpr std::int64_t expired = 15;
constexpr std::int64_t rewound = 16;
constexpr std::int64_t replayed = 17;

constexpr std::string_view way_out = "; or give the job a key: muster key in a shared home directory, or MUSTER_KEY";

/// "NAME value" of a line, in this order: a name that is missing makes the text malformed.
constexpr std::array<std::string_view, 5> line_names{"muster-key", "step", "job", "nonce", "key"};
constexpr std::string_view text_version = "1";

std::string_view take_line(std::string_view& text) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return line;
}

/// The value of "NAME: value" among the lines up to an empty one.
std::optional<std::int64_t> number_of(std::string_view printed, std::string_view name) {
    while (!printed.empty()) {
        auto line = take_line(printed);
        if (line.empty()) break;
        if (!line.starts_with(cat(name, ':'))) continue;
        line.remove_prefix(name.size() + 1);
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        return whole_number(line, 0, munge_number_max);
    }
    return std::nullopt;
}

Error denied(std::string why) {
    return {Errc::permission_denied, std::move(why)};
}

/// The last line, which has the reason: "munge: Error: Failed to access ...". Never a credential.
std::string reason(std::string_view printed) {
    std::string_view last;
    while (!printed.empty()) {
        const auto line = take_line(printed);
        if (!line.empty() && !line.starts_with(credential_begin)) last = line;
    }
    return printable_line(last);
}

/// From the line on that begins like this; all of it if none does.
std::string_view from_line(std::string_view printed, std::string_view begin) {
    for (auto rest = printed; !rest.empty(); take_line(rest))
        if (rest.starts_with(begin)) return rest;
    return printed;
}

bool lacks_daemon(std::string_view printed) {
    return printed.find("munged") != std::string_view::npos || printed.find("connect") != std::string_view::npos;
}

std::optional<Error> wrong_status(std::string_view printed) {
    const auto status = number_of(printed, "STATUS");
    if (printed == no_munge_program)
        return Error{Errc::not_found, cat("this node has no program unmunge: install munge", way_out)};
    if (printed.empty())
        return Error{Errc::timed_out, "unmunge printed nothing in time: look at munged on this node, and start again"};
    if (!status && lacks_daemon(printed))
        return Error{Errc::unreachable,
                     cat("munge does not work on this node (", reason(printed), "): start munged there", way_out)};
    if (!status) return denied(cat("munge refuses it on this node (", reason(printed), ")", way_out));
    if (*status == expired || *status == rewound)
        return Error{Errc::timed_out,
                     cat("munge says that it ", *status == expired ? "has expired" : "is of a later time",
                         ": the clocks of this node and of the first one differ; synchronize them (chronyc "
                         "tracking), and start again")};
    if (*status == replayed)
        return denied("munge says that it has been decoded on this node before: somebody sends old ones; start again");
    if (*status != 0) return denied(cat("munge refuses it (its error ", *status, ")", way_out));
    return std::nullopt;
}

/// Somebody else answers: the first node may still come.
Error foreign(std::string why) {
    return {Errc::refused, std::move(why)};
}

Error other(std::string_view what, std::string_view theirs, std::string_view ours) {
    return foreign(cat("it is for ", what, ' ', printable_line(theirs), ", and this node is of ", what, ' ', ours,
                       ": another job of yours serves that port; start the step again"));
}

}  // namespace

bool is_munge_nonce(std::string_view text) {
    return text.size() == nonce_digits &&
           std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

MungeKeyTerms munge_key_terms(const std::string& job, const Environment& environment) {
    const auto task = slurm_task(environment);
    return {.step = task ? task->job : std::string(), .job = job, .nonce = {}};
}

std::vector<std::string> munge_command(std::uint32_t uid) {
    return {"sh", "-c", "command -v munge >/dev/null || { echo none; exit; }; exec munge --restrict-uid=\"$0\" 2>&1",
            cat(uid)};
}

std::vector<std::string> unmunge_command() {
    return {"sh", "-c",
            "command -v unmunge >/dev/null || { echo none; exit; }; "
            "exec unmunge --numeric --keys=STATUS,UID,UID_RESTRICTION 2>&1"};
}

std::string munge_key_text(const MungeKeyTerms& terms, std::string_view key) {
    std::string text;
    const std::array<std::string_view, line_names.size()> values{text_version, terms.step, terms.job, terms.nonce, key};
    std::size_t size = 0;
    for (std::size_t i = 0; i < line_names.size(); ++i) size += line_names[i].size() + values[i].size() + 2;
    text.reserve(size);  // in one piece, which the caller can wipe
    for (std::size_t i = 0; i < line_names.size(); ++i)
        text.append(line_names[i]).append(" ").append(values[i]).append("\n");
    return text;
}

Result<std::string> munged_key(std::string_view printed, const MungeKeyTerms& terms, std::uint32_t uid) {
    printed = from_line(printed, "STATUS:");
    if (auto wrong = wrong_status(printed)) return *std::move(wrong);
    const auto maker = number_of(printed, "UID");
    if (maker != uid)
        return foreign(cat("it was made by the user ", maker ? cat(*maker) : std::string("of no number"),
                           ", and this muster runs as ", uid,
                           ": another user's program serves the port of the rendezvous; start the step again"));
    if (number_of(printed, "UID_RESTRICTION") != uid) return foreign("it is not for this user alone");
    const auto begin = printed.find("\n\n");
    auto text = begin == std::string_view::npos ? std::string_view() : printed.substr(begin + 2);
    std::array<std::string_view, line_names.size()> values;
    for (std::size_t i = 0; i < line_names.size(); ++i) {
        const auto line = take_line(text);
        if (!line.starts_with(cat(line_names[i], ' '))) return foreign("it holds no key of muster's");
        values[i] = line.substr(line_names[i].size() + 1);
    }
    if (values[0] != text_version) return denied("another version of muster made it; use one version on all nodes");
    if (values[1] != terms.step) return other("Slurm's step", values[1], terms.step);
    if (values[2] != terms.job) return other("the job", values[2], terms.job);
    if (values[3] != terms.nonce) return foreign("it answers another question: somebody sends old ones; start again");
    return std::string(values[4]);
}

std::string_view munge_credential(std::string_view printed) {
    auto rest = from_line(printed, credential_begin);
    return rest.starts_with(credential_begin) ? take_line(rest) : std::string_view();
}

std::string wrong_with_munge(std::string_view printed) {
    if (!munge_credential(printed).empty()) return {};
    if (printed.empty()) return "munge printed nothing in time";
    return reason(printed);
}

}  // namespace muster::launcher
