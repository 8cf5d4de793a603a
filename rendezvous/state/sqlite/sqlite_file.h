// One SQLite file as a map of records: opened for this process alone, checked whole, written in transactions.
//
// It lies in write-ahead logging, so that a transaction costs one append and one sync, with synchronous=FULL: what has
// been told to an agent must be there after a power failure too, or a round that runs would be sealed a second time.
// locking_mode=EXCLUSIVE keeps a second daemon out (and needs no shared memory, so that the file may lie on a network
// file system whose locks work).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/rounds/server.h"

struct sqlite3;
struct sqlite3_stmt;

namespace muster::rendezvous {

class SqliteFile {
  public:
    /// "mstr", so that no other program's database is taken for ours.
    static constexpr std::int64_t application_id = 0x6d737472;
    /// Of the tables. The records have a version of their own (rounds/job_record.h).
    static constexpr std::int64_t layout_version = 1;

    /// Opens the file, or makes it. bad_frame: damaged, or of another version of muster (nothing was changed).
    /// already_exists: another process has it open; the context names that process where the system tells.
    /// permission_denied, io, not_found: it cannot be written.
    static Result<std::unique_ptr<SqliteFile>> open(const std::string& path);
    ~SqliteFile();
    SqliteFile(const SqliteFile&) = delete;
    SqliteFile& operator=(const SqliteFile&) = delete;

    /// Every record in it. bad_frame when it is damaged.
    Result<std::vector<Record>> read();
    /// All of `records` in order, in one transaction: when it returns they are on the disk, or none of them is. An
    /// empty value deletes.
    Result<void> write(const std::vector<Record>& records);
    /// It was there before, without a single byte: no musterd leaves it so, unless it is killed in its first moment.
    [[nodiscard]] bool was_empty() const { return was_empty_; }

  private:
    SqliteFile(std::string path, sqlite3* database) : path_(std::move(path)), database_(database) {}

    Result<void> prepare();
    Result<void> claim();
    Result<void> check_version();
    Result<std::int64_t> number(const char* question);
    Result<void> run(const char* statement, const char* doing);
    Result<void> put(const Record& record);
    [[nodiscard]] Error failure(const char* doing, int code) const;

    std::string path_;
    sqlite3* database_ = nullptr;
    sqlite3_stmt* put_ = nullptr;
    sqlite3_stmt* erase_ = nullptr;
    bool was_empty_ = false;
};

/// Moves the file (and its log) out of the way: to `path`.aside-1, or the first such name that is free. Returns where
/// it went.
Result<std::string> set_aside(const std::string& path);

}  // namespace muster::rendezvous
