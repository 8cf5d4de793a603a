#include "launcher/complaint.h"

#include <cstdio>

#include "rendezvous/base/text.h"

namespace muster::launcher {

int complain(std::string_view command, int code, std::string_view line) {
    const auto text = cat("muster ", command, ": ", line, "\n");
    std::fwrite(text.data(), 1, text.size(), stderr);
    return code;
}

}  // namespace muster::launcher
