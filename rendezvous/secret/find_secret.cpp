#include "rendezvous/secret/find_secret.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/system/private_file.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/secret/job_secret.h"

namespace muster::rendezvous {

namespace {

constexpr std::string_view make_one = "Make one: muster key";
constexpr const char* no_home = "HOME is not set, so there is no ~/.muster/key; set MUSTER_KEY";

void drop_line_end(std::string& text) {
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
}

Result<Secret> checked(std::string text, std::string origin) {
    if (text.size() < secret_bytes_min)
        return Error{Errc::limit_exceeded,
                     cat(origin, " holds ", text.size(), " bytes; a secret has at least ", secret_bytes_min,
                         ", because a false daemon can guess a short one. ", make_one)};
    if (const auto wrong = wrong_with_job_key(text); !wrong.empty())
        return Error{Errc::limit_exceeded, cat(origin, " ", wrong)};
    return Secret{.text = std::move(text), .origin = std::move(origin)};
}

Result<Secret> from_file(const std::string& path, const std::string& origin) {
    auto text = read_private_file(path, "the secret's file", make_one);
    if (!text) return with_context(text.error(), origin);
    auto secret = checked(*std::move(text), origin);
    if (secret) secret->path = path;
    return secret;
}

/// Empty: the variable is not set.
Result<Secret> from_variable(const char* name, const ValueOf& value_of) {
    auto text = value_of(name);
    if (text.empty()) return Secret{};
    ::prctl(PR_SET_DUMPABLE, 0);  // as read_private_file does
    drop_line_end(text);          // as a file's
    return checked(std::move(text), name);
}

/// A file that cannot be looked at counts as one that is there: its reader then says what is wrong.
bool exists(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

std::string own_key_path(const ValueOf& value_of) {
    const auto home = value_of("HOME");
    return home.starts_with('/') ? cat(home, "/.muster/key") : std::string();
}

/// A new file, on the disk when this returns; after a failure it is not there.
Result<void> write_private_file(const std::string& path, std::string_view text) {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid()) return error_from_errno(errno, cat("create ", path));
    const bool is_written = ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!is_written || ::fsync(file.get()) != 0) {
        const int number = errno;
        ::unlink(path.c_str());
        return error_from_errno(number, cat("write ", path));
    }
    return {};
}

/// A private file with this line beside `path`, in a directory of its own. The file's path.
Result<std::string> write_draft(const std::string& path, std::string_view text) {
    const auto folder = path.substr(0, path.rfind('/'));
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return error_from_errno(errno, cat("create ", folder));
    auto draft = cat(path, '.', hexadecimal(random_nonce()).substr(0, 16));
    MUSTER_TRY(write_private_file(draft, cat(text, '\n')));
    return draft;
}

}  // namespace

Result<Secret> find_secret(const ValueOf& value_of) {
    if (const auto path = value_of("MUSTER_SECRET_FILE"); !path.empty()) return from_file(path, "MUSTER_SECRET_FILE");
    if (auto secret = from_variable("MUSTER_KEY", value_of); !secret || !secret->text.empty()) return secret;
    if (const auto folder = value_of("CREDENTIALS_DIRECTORY"); !folder.empty()) {
        const auto path = cat(folder, "/muster.key");
        if (exists(path)) return from_file(path, path);
    }
    if (const auto path = own_key_path(value_of); !path.empty() && exists(path)) return from_file(path, path);
    return Secret{};
}

Result<std::vector<Secret>> find_accepted_secrets(const ValueOf& value_of) {
    return accepted_with(MUSTER_TRY(find_secret(value_of)), value_of);
}

Result<std::vector<Secret>> accepted_with(Secret in_use, const ValueOf& value_of) {
    std::vector<Secret> accepted;
    if (in_use.text.empty()) return accepted;
    const auto old_path = in_use.path.empty() ? std::string() : cat(in_use.path, ".old");
    accepted.push_back(std::move(in_use));
    auto old = from_variable("MUSTER_KEY_OLD", value_of);
    if (old && old->text.empty() && !old_path.empty() && exists(old_path)) old = from_file(old_path, old_path);
    if (!old) return old.error();
    if (!old->text.empty()) accepted.push_back(*std::move(old));
    return accepted;
}

Result<Secret> make_own_key(const ValueOf& value_of) {
    const auto path = own_key_path(value_of);
    if (path.empty()) return Error{Errc::invalid_argument, no_home};
    if (exists(path)) return from_file(path, path);
    const auto text = hexadecimal(random_nonce());
    const auto draft = MUSTER_TRY(write_draft(path, text));
    // link() refuses an existing name, also over NFS: of several makers one wins.
    const bool is_linked = ::link(draft.c_str(), path.c_str()) == 0;
    const bool has_links = is_linked || errno == EEXIST;
    ::unlink(draft.c_str());
    // Some file systems (FUSE, SMB) have no links. There a reader at this moment may find an empty file, and says so.
    const auto written = has_links ? Result<void>() : write_private_file(path, cat(text, '\n'));
    if (!written && written.error().code != Errc::already_exists) return written.error();
    auto made = from_file(path, path);
    if (made) made->is_new = has_links ? is_linked : written.has_value();
    return made;
}

Result<Secret> find_own_key(const ValueOf& value_of) {
    const auto path = own_key_path(value_of);
    if (path.empty()) return Secret{};
    if (!exists(path)) {
        // NFS remembers for up to a minute that a name did not exist. A change of this host's in the directory ends
        // that.
        const auto folder = path.substr(0, path.rfind('/'));
        const bool is_new_folder = ::mkdir(folder.c_str(), 0700) == 0;
        if (const auto draft = write_draft(path, "looks for the key"); draft) ::unlink(draft->c_str());
        if (is_new_folder) ::rmdir(folder.c_str());
        if (is_new_folder || !exists(path)) return Secret{};
    }
    return from_file(path, path);
}

Result<OwnKeySet> set_own_key(const ValueOf& value_of, std::string text) {
    const auto path = own_key_path(value_of);
    if (path.empty()) return Error{Errc::invalid_argument, no_home};
    drop_line_end(text);
    auto secret = MUSTER_TRY(checked(std::move(text), "stdin"));
    const bool is_same = exists(path) && [&] {
        const auto there = from_file(path, path);
        return there && there->text == secret.text;
    }();
    if (is_same) return OwnKeySet{.secret = {.text = {}, .origin = path}, .kept_as = {}};
    const auto draft = MUSTER_TRY(write_draft(path, secret.text));
    const auto old = exists(path) ? cat(path, ".old") : std::string();
    // At no moment is there none: a launch would make another one. But for file systems without links.
    if (!old.empty()) ::unlink(old.c_str());
    const bool is_kept =
        old.empty() || ::link(path.c_str(), old.c_str()) == 0 || ::rename(path.c_str(), old.c_str()) == 0;
    if (!is_kept || ::rename(draft.c_str(), path.c_str()) != 0) {
        const int number = errno;
        ::unlink(draft.c_str());
        if (!old.empty() && !exists(path)) ::rename(old.c_str(), path.c_str());
        return error_from_errno(number, cat("replace ", path));
    }
    return OwnKeySet{.secret = {.text = {}, .origin = path}, .kept_as = old};
}

}  // namespace muster::rendezvous
