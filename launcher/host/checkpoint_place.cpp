#include "launcher/host/checkpoint_place.h"

#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <memory>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"

namespace muster::launcher {

namespace {

/// The nearest existing parent of `path` (or `path`) if it is not a directory, else empty.
std::string file_in_the_way(std::filesystem::path path) {
    struct stat facts {};
    while (::stat(path.c_str(), &facts) != 0) {
        if (!path.has_relative_path()) return {};
        path = path.parent_path();
    }
    return S_ISDIR(facts.st_mode) ? std::string() : path.string();
}

}  // namespace

Result<void> check_checkpoint_place(const std::string& option, const std::string& path, Duration limit) {
    if (path.empty()) return {};
    const auto answer = std::make_shared<std::promise<std::string>>();
    auto found = answer->get_future();
    auto thread = start_thread("muster-look", [answer, path] { answer->set_value(file_in_the_way(path)); });
    if (!thread) return {};  // threads that muster needs are started later and report the error
    thread->detach();
    if (found.wait_for(limit) != std::future_status::ready) {
        log(LogLevel::warning, option, ": the file system of ", path, " has not answered for ", describe(limit),
            "; workers may hang in it; check the file server");
        return {};
    }
    const auto file = found.get();
    if (file.empty()) return {};
    return Error{Errc::invalid_argument, cat(option, ": ", path, " cannot be a directory, because ", file,
                                             " is not one; write another directory, or remove that file")};
}

}  // namespace muster::launcher
