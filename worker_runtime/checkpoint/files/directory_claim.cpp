#include "worker_runtime/checkpoint/files/directory_claim.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/format/json_text.h"

namespace muster::runtime {

namespace {

constexpr off_t life_byte = 0, commit_byte = 1;
/// A commit takes milliseconds; a process that holds the byte longer has been stopped.
constexpr Duration commit_wait = 10s;
constexpr std::size_t record_bytes_max = 4096;

/// The last claimant of the directory, as recorded in LOCK.
struct Record {
    std::string job, host, token;
    std::int64_t round = 0, pid = 0;
};

std::string encode(const Record& record) {
    return nlohmann::ordered_json{{"job", record.job},
                                  {"round", record.round},
                                  {"host", record.host},
                                  {"pid", record.pid},
                                  {"token", record.token}}
        .dump();
}

/// Returns an empty record if the text is malformed: a new or damaged file.
Record decode(std::string_view text) {
    Record record;
    const auto json = parse_json(text);
    if (!json) return record;
    const JsonObject object(*json);
    const bool whole = object.text("job", record.job) && object.text("host", record.host) &&
                       object.text("token", record.token) && object.number("round", record.round) &&
                       object.number("pid", record.pid);
    return whole ? record : Record{};
}

/// LOCK would be overwritten, so a file that another user may have put there is left alone.
Error planted(const std::string& path, const std::string& what) {
    return {Errc::refused,
            cat(path, " is ", what, ", which muster did not make: another user of this directory may have ",
                "put it there; remove it, or use another --checkpoint-dir")};
}

enum class Locked { yes, no, unsupported };

Locked lock_byte(int file, off_t byte, short kind) {
    struct flock lock {};
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    while (::fcntl(file, F_SETLK, &lock) != 0) {
        if (errno == EINTR) continue;
        return errno == EACCES || errno == EAGAIN ? Locked::no : Locked::unsupported;
    }
    return Locked::yes;
}

/// An open file and the process that opened it: a forked child has a copy of our memory but none of our locks.
using OpenFile = std::tuple<pid_t, dev_t, ino_t>;

/// fcntl's locks belong to the process, so opening LOCK twice in one process must be detected here.
class OwnClaims {
  public:
    void add(const OpenFile& file) {
        const std::lock_guard lock(mutex_);
        files_.insert(file);
    }
    [[nodiscard]] bool has(const OpenFile& file) {
        const std::lock_guard lock(mutex_);
        return files_.contains(file);
    }
    void remove(const OpenFile& file) {
        const std::lock_guard lock(mutex_);
        files_.erase(file);
    }

  private:
    std::mutex mutex_;
    std::set<OpenFile> files_;
};

OwnClaims& own_claims() {
    static OwnClaims claims;
    return claims;
}

}  // namespace

std::string fresh_token() {
    std::random_device random;
    return cat(crc_text(random()), crc_text(random()));
}

struct DirectoryClaim::Body {
    std::string directory;
    FileDescriptor file;
    OpenFile identity;
    Record record;
    std::optional<Claimant> visitor;

    ~Body() { own_claims().remove(identity); }

    Result<void> open(int flags);
    Result<void> claim(const Claimant& claimant);
    /// Requires the commit byte. Runs `action`, unless the directory belongs to another claimant or is in use.
    Result<void> as_visitor(const std::function<Result<void>()>& action);
    Result<void> with_commit_byte(const std::function<Result<void>()>& action);
    [[nodiscard]] Record read_record() const;
    /// True if LOCK is still the file that was claimed.
    [[nodiscard]] bool is_in_place() const {
        struct stat facts {};
        return ::lstat((directory + "/LOCK").c_str(), &facts) == 0 &&
               OpenFile(::getpid(), facts.st_dev, facts.st_ino) == identity;
    }

  private:
    Result<void> write_record() const;
};

Result<void> DirectoryClaim::Body::open(int flags) {
    const auto path = directory + "/LOCK";
    struct stat facts {};
    // Checked by name, before opening: closing a second descriptor of the file would release the locks of the first.
    if (::lstat(path.c_str(), &facts) == 0 && own_claims().has({::getpid(), facts.st_dev, facts.st_ino})) {
        return Error{Errc::already_exists, cat("checkpoint directory ", directory, " is open in this process already")};
    }
    file = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, file_mode));
    if (!file.valid() && errno == ELOOP) return planted(path, "a symbolic link");
    if (!file.valid() || ::fstat(file.get(), &facts) != 0) return error_from_errno(errno, cat("open ", path));
    if (!S_ISREG(facts.st_mode)) return planted(path, "no regular file");
    if (!has_our_owner(facts, directory)) return planted(path, cat("a file of another user (uid ", facts.st_uid, ")"));
    // A hard-linked copy of the directory is accepted: its LOCK has a valid record.
    if (facts.st_nlink > 1 && facts.st_size > 0 && read_record().token.empty())
        return planted(path, "a hard link to a file of another kind");
    identity = {::getpid(), facts.st_dev, facts.st_ino};
    own_claims().add(identity);
    return {};
}

Result<void> DirectoryClaim::Body::with_commit_byte(const std::function<Result<void>()>& action) {
    const auto until = std::chrono::steady_clock::now() + commit_wait;
    auto locked = lock_byte(file.get(), commit_byte, F_WRLCK);
    while (locked == Locked::no) {
        if (std::chrono::steady_clock::now() > until) {
            const auto by = read_record();
            return Error{Errc::timed_out,
                         cat(directory, "/LOCK has been locked for ", describe(commit_wait), "; job ", by.job, " on ",
                             by.host, " may have been stopped in the middle of a save")};
        }
        std::this_thread::sleep_for(5ms);
        locked = lock_byte(file.get(), commit_byte, F_WRLCK);
    }
    auto done = action();
    if (locked == Locked::yes) lock_byte(file.get(), commit_byte, F_UNLCK);
    return done;
}

Result<void> DirectoryClaim::Body::claim(const Claimant& claimant) {
    const auto before = read_record();
    const auto host = host_name();
    const auto alive = lock_byte(file.get(), life_byte, F_WRLCK);
    if (alive == Locked::unsupported) {
        log(LogLevel::warning, directory,
            ": its file system has no locks, so a second job that writes there would not be "
            "noticed before it commits");
    }
    // On one host an agent ends all workers of a round before the next begins. An agent on another host may not know
    // yet.
    const bool our_past = before.job == claimant.job && before.host != host && before.round < claimant.round;
    if (alive == Locked::no && !our_past) {
        return Error{Errc::already_exists,
                     cat("checkpoint directory ", directory, " is in use by job ", before.job, " (round ", before.round,
                         ", process ", before.pid, " on ", before.host, "); give this job another --checkpoint-dir")};
    }
    record = {.job = claimant.job, .host = host, .token = fresh_token(), .round = claimant.round, .pid = ::getpid()};
    return write_record();
}

Record DirectoryClaim::Body::read_record() const {
    std::string text(record_bytes_max, '\0');
    const auto got = ::pread(file.get(), text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return decode(text);
}

Result<void> DirectoryClaim::Body::write_record() const {
    const auto text = encode(record);
    if (::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
        ::ftruncate(file.get(), static_cast<off_t>(text.size())) != 0) {
        return error_from_errno(errno, cat("write ", directory, "/LOCK"));
    }
    return {};
}

Result<DirectoryClaim> DirectoryClaim::take(const std::string& directory, const Claimant& claimant) {
    auto body = std::make_unique<Body>();
    body->directory = directory;
    if (auto opened = body->open(O_CREAT); !opened) return opened.error();
    auto claimed = body->with_commit_byte([&] { return body->claim(claimant); });
    if (!claimed) return claimed.error();
    return DirectoryClaim(std::move(body));
}

Result<DirectoryClaim> DirectoryClaim::visit(const std::string& directory, const Claimant& visitor) {
    auto body = std::make_unique<Body>();
    body->directory = directory;
    body->visitor = visitor;
    if (auto opened = body->open(0); !opened) return opened.error();
    return DirectoryClaim(std::move(body));
}

Result<void> DirectoryClaim::Body::as_visitor(const std::function<Result<void>()>& action) {
    const auto now = read_record();
    if (now.job != visitor->job || now.round > visitor->round || !is_in_place()) {
        return Error{Errc::refused, cat("checkpoint directory ", directory, " belongs to round ", now.round, " of job ",
                                        now.job, " on ", now.host)};
    }
    // The byte is held only during `action`. A starting round cannot be disturbed, because it tries this byte only
    // while it holds the commit byte.
    const auto free = lock_byte(file.get(), life_byte, F_WRLCK);
    if (free == Locked::no) {
        return Error{Errc::already_exists, cat("process ", now.pid, " on ", now.host, " still uses ", directory)};
    }
    auto done = action();
    if (free == Locked::yes) lock_byte(file.get(), life_byte, F_UNLCK);
    return done;
}

Result<void> DirectoryClaim::exclusively(const std::function<Result<void>()>& action) {
    return body_->with_commit_byte([&]() -> Result<void> {
        if (body_->visitor) return body_->as_visitor(action);
        const auto now = body_->read_record();
        // A round that took over from a living rank 0 locks the life byte once that process has ended.
        (void)lock_byte(body_->file.get(), life_byte, F_WRLCK);
        if (now.token == body_->record.token && body_->is_in_place()) return action();
        return Error{Errc::refused,
                     cat("checkpoint directory ", body_->directory, " was taken over by round ", now.round, " of job ",
                         now.job, " on ", now.host, "; this is round ", body_->record.round)};
    });
}

bool DirectoryClaim::is_visitor() const {
    return body_->visitor.has_value();
}

const std::string& DirectoryClaim::token() const {
    return body_->record.token;
}

DirectoryClaim::DirectoryClaim(std::unique_ptr<Body> body) : body_(std::move(body)) {}
DirectoryClaim::~DirectoryClaim() = default;
DirectoryClaim::DirectoryClaim(DirectoryClaim&&) noexcept = default;
DirectoryClaim& DirectoryClaim::operator=(DirectoryClaim&&) noexcept = default;

}  // namespace muster::runtime
