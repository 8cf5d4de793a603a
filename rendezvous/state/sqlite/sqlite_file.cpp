#include "rendezvous/state/sqlite/sqlite_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr const char* opening = "cannot open";
constexpr const char* reading = "cannot read";
constexpr const char* writing = "cannot write";

/// The locks of a daemon that was just killed may last a moment longer.
constexpr int busy_wait_ms = 2'000;

/// The process that holds a lock on the file; 0: unknown.
pid_t holder_of(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0) return 0;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (::fcntl(file.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return 0;
    return lock.l_pid;
}

/// SQLite reports a full disk, but not RLIMIT_FSIZE. A write beyond that limit fills the file up to it before it fails.
bool is_at_size_limit(const std::string& path) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
    return std::ranges::any_of(std::array{"", "-wal", "-journal"}, [&](const char* ending) {
        struct stat facts {};
        return ::stat(cat(path, ending).c_str(), &facts) == 0 && static_cast<rlim_t>(facts.st_size) >= limit.rlim_cur;
    });
}

constexpr std::string_view room_advice = ": free space or inodes on its disk, or raise the quota";

bool is_out_of_room(int number) {
    return number == ENOSPC || number == EDQUOT;
}

/// SQLite's errno of a file that it could not create is that of its second try, to open the file for reading.
bool has_no_inode(const std::string& path) {
    struct statvfs disk {};
    return ::statvfs(path.c_str(), &disk) == 0 && disk.f_files > 0 && disk.f_favail == 0;
}

Error cannot_open(const std::string& path, int number) {
    auto error = error_from_errno(number, cat("cannot open the state file ", path));
    if (number == ENOENT) error.context += "; its directory must exist";
    if (is_out_of_room(number)) error.context += room_advice;
    return error;
}

enum class Found { nothing, empty, content };

/// Creates the file with mode 0600, because failure records contain workers' stderr.
Result<Found> make_file(const std::string& path) {
    const bool was_there = ::access(path.c_str(), F_OK) == 0;
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (file.get() < 0) return cannot_open(path, errno);
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
        return Error{Errc::invalid_argument, cat("the state file ", path, " is not a regular file")};
    return facts.st_size > 0 ? Found::content : was_there ? Found::empty : Found::nothing;
}

}  // namespace

Result<std::unique_ptr<SqliteFile>> SqliteFile::open(const std::string& path) {
    const auto found = MUSTER_TRY(make_file(path));
    sqlite3* database = nullptr;
    const int opened = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    auto file = std::unique_ptr<SqliteFile>(new SqliteFile(path, database));
    if (opened != SQLITE_OK) return file->failure(opening, opened);
    if (const auto prepared = file->prepare(); !prepared) {
        // A file left without a byte would look like lost contents to the next daemon. The user's link stays.
        struct stat facts {};
        const bool is_new = found == Found::nothing && ::lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
        if (is_new && prepared.error().code == Errc::limit_exceeded) ::unlink(path.c_str());
        return prepared.error();
    }
    file->was_empty_ = found == Found::empty;
    return file;
}

SqliteFile::~SqliteFile() {
    sqlite3_finalize(put_);
    sqlite3_finalize(erase_);
    sqlite3_close(database_);
}

Error SqliteFile::failure(const char* doing, int code) const {
    const auto text = cat("the state file ", path_, ": ", doing, ": ", sqlite3_errmsg(database_));
    const int kind = code & 0xff;
    if (kind == SQLITE_IOERR && is_at_size_limit(path_))
        return {Errc::permission_denied, cat(text, ": ", errno_text(EFBIG))};
    // SQLITE_FULL is for a write that fails with ENOSPC. There is none for quotas and for new files.
    const int number = sqlite3_system_errno(database_);
    if (kind == SQLITE_IOERR && is_out_of_room(number))
        return {Errc::limit_exceeded, cat(text, ": ", errno_text(number), room_advice)};
    if (kind == SQLITE_FULL || (kind == SQLITE_CANTOPEN && has_no_inode(path_)))
        return {Errc::limit_exceeded, cat(text, room_advice)};
    switch (kind) {
        case SQLITE_NOTADB:
        case SQLITE_TOOBIG:  // the length of a row that nobody wrote
        case SQLITE_CORRUPT: return {Errc::bad_frame, text};
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_CANTOPEN: return {Errc::permission_denied, text};
        case SQLITE_BUSY:
        case SQLITE_LOCKED: {
            const auto holder = holder_of(path_);
            return {Errc::already_exists,
                    cat("the state file ", path_, " is in use by another daemon",
                        holder > 0 ? cat(" (pid ", holder, ")") : std::string{}, "; give each daemon its own file")};
        }
        default: return {Errc::io, text};
    }
}

Result<void> SqliteFile::run(const char* statement, const char* doing) {
    const int code = sqlite3_exec(database_, statement, nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) return {};
    return failure(doing, sqlite3_extended_errcode(database_));
}

Result<std::int64_t> SqliteFile::number(const char* question) {
    sqlite3_stmt* statement = nullptr;
    int code = sqlite3_prepare_v2(database_, question, -1, &statement, nullptr);
    if (code == SQLITE_OK) code = sqlite3_step(statement);
    const std::int64_t value = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    auto error = failure(opening, code);
    sqlite3_finalize(statement);
    if (code != SQLITE_ROW) return error;
    return value;
}

Result<void> SqliteFile::prepare() {
    sqlite3_busy_timeout(database_, busy_wait_ms);
    MUSTER_TRY(run("PRAGMA locking_mode=EXCLUSIVE", opening));
    MUSTER_TRY(check_version());
    for (const auto* statement : {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"})
        MUSTER_TRY(run(statement, opening));
    MUSTER_TRY(claim());
    const auto make = [this](const char* text, sqlite3_stmt*& statement) -> Result<void> {
        const int code = sqlite3_prepare_v3(database_, text, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
        if (code == SQLITE_OK) return {};
        return failure(opening, code);
    };
    MUSTER_TRY(make("INSERT OR REPLACE INTO records(key, value) VALUES(?, ?)", put_));
    return make("DELETE FROM records WHERE key = ?", erase_);
}

/// Refuses another program's database without renaming it. A database without tables counts as new.
Result<void> SqliteFile::check_version() {
    const auto id = MUSTER_TRY(number("PRAGMA application_id"));
    const auto table_count = MUSTER_TRY(number("SELECT count(*) FROM sqlite_schema"));
    if (id == 0 && table_count == 0) return {};
    if (id != application_id)
        return Error{Errc::invalid_argument, cat("the state file ", path_, " is the database of another program")};
    const auto version = MUSTER_TRY(number("PRAGMA user_version"));
    if (version != layout_version)
        return Error{Errc::bad_frame, cat("the state file ", path_, " has version ", version,
                                          "; this musterd supports version ", layout_version)};
    return {};
}

/// Takes the lock permanently, and writes once to verify that the file is writable.
Result<void> SqliteFile::claim() {
    const auto statements = cat(
        "BEGIN IMMEDIATE;", "CREATE TABLE IF NOT EXISTS records(key BLOB PRIMARY KEY, value BLOB NOT NULL) ",
        "WITHOUT ROWID;", "PRAGMA application_id=", application_id, ";PRAGMA user_version=", layout_version, ";COMMIT");
    auto done = run(statements.c_str(), writing);
    if (!done) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    return done;
}

Result<std::vector<Record>> SqliteFile::read() {
    // First, because SQLite's check takes a disk that fails to read for damage, and the file would be set aside.
    auto records = read_rows();
    if (!records && records.error().code != Errc::bad_frame) return records;
    sqlite3_stmt* check = nullptr;
    int code = sqlite3_prepare_v2(database_, "PRAGMA integrity_check(1)", -1, &check, nullptr);
    if (code == SQLITE_OK) code = sqlite3_step(check);
    auto error = failure(reading, code);
    std::string verdict;
    if (code == SQLITE_ROW) verdict = reinterpret_cast<const char*>(sqlite3_column_text(check, 0));
    sqlite3_finalize(check);
    if (code != SQLITE_ROW) return error;
    std::ranges::replace(verdict, '\n', ' ');
    if (verdict != "ok") return Error{Errc::bad_frame, cat("the state file ", path_, " is damaged: ", verdict)};
    return records;
}

Result<std::vector<Record>> SqliteFile::read_rows() {
    const auto blob = [](sqlite3_stmt* row, int column) {
        const auto* bytes = static_cast<const char*>(sqlite3_column_blob(row, column));
        return std::string(bytes == nullptr ? "" : bytes, static_cast<std::size_t>(sqlite3_column_bytes(row, column)));
    };
    std::vector<Record> records;
    sqlite3_stmt* rows = nullptr;
    int code = sqlite3_prepare_v2(database_, "SELECT key, value FROM records", -1, &rows, nullptr);
    if (code == SQLITE_OK)
        while ((code = sqlite3_step(rows)) == SQLITE_ROW) records.push_back({blob(rows, 0), blob(rows, 1)});
    auto error = failure(reading, code);
    sqlite3_finalize(rows);
    if (code != SQLITE_DONE) return error;
    return records;
}

Result<void> SqliteFile::put(const Record& record) {
    sqlite3_stmt* const statement = record.value.empty() ? erase_ : put_;
    sqlite3_bind_blob64(statement, 1, record.key.data(), record.key.size(), SQLITE_STATIC);
    if (statement == put_) sqlite3_bind_blob64(statement, 2, record.value.data(), record.value.size(), SQLITE_STATIC);
    const int code = sqlite3_step(statement);
    auto error = failure(writing, sqlite3_extended_errcode(database_));
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    if (code != SQLITE_DONE) return error;
    return {};
}

Result<void> SqliteFile::write(const std::vector<Record>& records) {
    auto done = run("BEGIN IMMEDIATE", writing);
    for (auto record = records.begin(); done && record != records.end(); ++record) done = put(*record);
    if (done) done = run("COMMIT", writing);
    // Fails harmlessly when a full disk has already caused a rollback.
    if (!done) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    return done;
}

Result<std::string> set_aside(const std::string& path) {
    std::string aside;
    for (int number = 1;; ++number) {
        aside = cat(path, ".aside-", number);
        if (::access(aside.c_str(), F_OK) != 0) break;
    }
    // The log belongs to the file: its transactions are not in the file yet.
    const auto log = path + "-wal";
    if (::access(log.c_str(), F_OK) == 0 && std::rename(log.c_str(), (aside + "-wal").c_str()) != 0)
        return error_from_errno(errno, cat("cannot rename ", log));
    if (std::rename(path.c_str(), aside.c_str()) != 0) return error_from_errno(errno, cat("cannot rename ", path));
    return aside;
}

}  // namespace muster::rendezvous
