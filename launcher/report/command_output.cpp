#include "launcher/report/command_output.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

int print_error(std::string_view command, int code, std::string_view line) {
    const auto text = printable(cat("muster", command.empty() ? "" : " ", command, ": ", line, "\n"));
    std::fwrite(text.data(), 1, text.size(), stderr);
    return code;
}

int answer(std::string_view command, std::string_view text, int code) {
    errno = 0;
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    // An earlier write may have failed; its errno is lost.
    return print_error(command, exit_codes::internal,
                       cat("cannot write to stdout", errno == 0 ? "" : cat(": ", errno_text(errno))));
}

bool asks_for_help(const std::vector<std::string>& words) {
    return std::ranges::any_of(words, [](const auto& word) { return word == "--help" || word == "-h"; });
}

}  // namespace muster::launcher
