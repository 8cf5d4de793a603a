#include "worker_runtime/checkpoint/files/identity.h"

#include <errno.h>
#include <unistd.h>

#include <span>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/json_text.h"

namespace muster::runtime {

namespace {

constexpr std::size_t identity_digits = 16;

std::string place_of(const std::string& directory) {
    return directory + "/IDENTITY";
}

/// LATEST is written with the first checkpoint, and retention keeps at least one.
Result<bool> was_emptied(const std::string& directory) {
    if (!exists(directory + "/LATEST")) return false;
    return MUSTER_TRY(list_directory(directory)).checkpoints.empty();
}

/// Removes LATEST after IDENTITY was replaced. If this is interrupted, the next start replaces IDENTITY once more.
Result<void> forget_latest(const std::string& directory) {
    const auto latest = directory + "/LATEST";
    if (::unlink(latest.c_str()) != 0 && errno != ENOENT) return error_from_errno(errno, cat("remove ", latest));
    return flush_folder(directory);
}

}  // namespace

std::string identity_of(const std::string& directory) {
    auto text = read_text(place_of(directory), identity_digits + 1);
    if (!text || text->size() != identity_digits + 1 || text->back() != '\n') return {};
    text->pop_back();
    return text->find_first_not_of("0123456789abcdef") == std::string::npos ? *text : std::string();
}

Result<std::string> keep_identity(const std::string& directory, DirectoryClaim& claim) {
    std::string identity;
    MUSTER_TRY(claim.exclusively([&]() -> Result<void> {
        identity = identity_of(directory);
        auto emptied = MUSTER_TRY(was_emptied(directory));
        if (!identity.empty() && !emptied) return {};
        if (!identity.empty()) {
            log(LogLevel::warning, directory, ": its checkpoints were removed, so it starts from the beginning; ",
                "copies of them in agents' memory and on local disks are ignored");
        }
        identity = fresh_token();
        MUSTER_TRY(replace_text(place_of(directory), identity + "\n"));
        return emptied ? forget_latest(directory) : Result<void>();
    }));
    return identity;
}

std::string directory_word(const std::string& directory, const std::string& identity) {
    const auto path = absolute_path(directory);
    const auto sum = crc_text(crc32c(std::as_bytes(std::span(path))));
    return identity.empty() ? sum : cat(sum, '-', identity);
}

}  // namespace muster::runtime
