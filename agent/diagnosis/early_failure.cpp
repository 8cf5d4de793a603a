#include "agent/diagnosis/early_failure.h"

#include <algorithm>
#include <array>

#include "agent/diagnosis/error_text.h"
#include "rendezvous/base/text/rank_text.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

// The same on every Linux; cores know no <cerrno>.
constexpr std::array start_errors = {2 /* ENOENT */, 8 /* ENOEXEC */, 13 /* EACCES */, 20 /* ENOTDIR */};

constexpr std::array exceptions = {std::string_view("ImportError"), std::string_view("ModuleNotFoundError"),
                                   std::string_view("SyntaxError"), std::string_view("IndentationError"),
                                   std::string_view("TabError")};

/// "ValueError" of "ValueError: bad batch", "CUDAError" of "torch.CUDAError"; empty for a line that is no exception's.
std::string_view exception_of(std::string_view line) {
    line = without_rank(line);
    const auto name = line.substr(0, line.find(':'));
    const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    });
    const auto last = is_name ? name.substr(name.rfind('.') + 1) : std::string_view{};
    return last.ends_with("Error") || last.ends_with("Exception") || last.ends_with("Interrupt") ? last
                                                                                                 : std::string_view{};
}

/// The one that ended the program is the last that it printed: an ImportError that was caught and led to another
/// exception stands before that.
bool imports_or_parses_badly(std::string_view text) {
    std::string_view last;
    for (const auto line : split(text, '\n'))
        if (const auto name = exception_of(line); !name.empty()) last = name;
    return std::ranges::find(exceptions, last) != exceptions.end();
}

bool complains_of_usage(std::string_view text) {
    for (const auto piece : split(text, '\n')) {
        const auto line = without_rank(piece);
        if (line.starts_with("usage: ") || line.starts_with("Usage: ") ||
            line.find(": error: ") != std::string_view::npos ||
            line.find("can't open file '") != std::string_view::npos)
            return true;
    }
    return false;
}

}  // namespace

bool repeats_itself(const WorkerEnd& end, std::string_view message, std::string_view stderr_tail) {
    if (const auto* not_started = std::get_if<NotStarted>(&end))
        return std::ranges::find(start_errors, not_started->error_number) != start_errors.end();
    const auto* exited = std::get_if<Exited>(&end);
    if (exited == nullptr) return false;
    const auto words = message.empty() ? last_bytes(stderr_tail) : last_bytes(message);
    switch (exited->code) {
        case 1: return imports_or_parses_badly(words) || words.find(": No module named ") != std::string_view::npos;
        case 2: return complains_of_usage(words);
        case 127: return words.find("error while loading shared libraries") != std::string_view::npos;
        default: return false;
    }
}

bool is_full_of_checkpoints(const WorkerEnd& end, std::string_view message, std::string_view stderr_tail) {
    if (!std::holds_alternative<Exited>(end)) return false;
    const auto words = error_text(message, stderr_tail);
    const auto at = words.rfind("the newest checkpoint was not saved: ");
    if (at == std::string_view::npos) return false;
    const auto line = words.substr(at, words.find('\n', at) - at);
    const auto holds = [line](std::string_view text) { return line.find(text) != std::string_view::npos; };
    return holds("No space left on device") || holds("Disk quota exceeded") || holds("File too large");
}

}  // namespace muster::agent
