#include "agent/process/temporary_folder.h"

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

TemporaryFolder::TemporaryFolder(const std::string& base) : path_(cat(base, "/muster-XXXXXX")) {
    // On failure the path stays one that does not exist.
    if (::mkdtemp(path_.data()) == nullptr) path_ = cat(base, "/muster-XXXXXX");
}

TemporaryFolder::~TemporaryFolder() {
    const auto deadline = std::chrono::steady_clock::now() + 1s;
    std::error_code failure;
    do {
        std::filesystem::remove_all(path_, failure);
    } while (failure && std::chrono::steady_clock::now() < deadline);
}

}  // namespace muster::agent
