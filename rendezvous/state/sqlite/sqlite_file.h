// One SQLite file as a map of records, opened exclusively, checked on open and written in transactions.
//
// Write-ahead logging makes a transaction cost one append and one sync. synchronous=FULL, because a decision that an
// agent has received must survive a power failure; else a running round would be sealed a second time.
// locking_mode=EXCLUSIVE refuses a second daemon. It needs no shared memory, so the file may be on a network file
// system with working locks.
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
    /// "mstr"; distinguishes muster's files from other programs' databases.
    static constexpr std::int64_t application_id = 0x6d737472;
    /// The version of the tables. The records have their own version (rounds/job_record.h).
    static constexpr std::int64_t layout_version = 1;

    /// Opens or creates the file. bad_frame: damaged, or of another version of muster (nothing was changed).
    /// already_exists: another process has it open; the context names that process if known. limit_exceeded: no room on
    /// its disk, which may change. permission_denied, io, not_found: it cannot be written.
    static Result<std::unique_ptr<SqliteFile>> open(const std::string& path);
    ~SqliteFile();
    SqliteFile& operator=(SqliteFile&&) = delete;

    /// Reads every record. bad_frame when the file is damaged; io when its disk fails to read.
    Result<std::vector<Record>> read();
    /// Writes `records` in order in one transaction: on return all of them are on the disk, or none. An empty value
    /// deletes.
    Result<void> write(const std::vector<Record>& records);
    /// True when the file existed with 0 bytes. musterd leaves such a file only when it is killed while it creates it.
    [[nodiscard]] bool was_empty() const { return was_empty_; }

  private:
    SqliteFile(std::string path, sqlite3* database) : path_(std::move(path)), database_(database) {}

    Result<void> prepare();
    Result<void> claim();
    Result<void> check_version();
    Result<std::int64_t> number(const char* question);
    Result<void> run(const char* statement, const char* doing);
    Result<std::vector<Record>> read_rows();
    Result<void> put(const Record& record);
    [[nodiscard]] Error failure(const char* doing, int code) const;

    std::string path_;
    sqlite3* database_ = nullptr;
    sqlite3_stmt* put_ = nullptr;
    sqlite3_stmt* erase_ = nullptr;
    bool was_empty_ = false;
};

/// Renames the file and its log to `path`.aside-1, or the first free number. Returns the new path.
Result<std::string> set_aside(const std::string& path);

}  // namespace muster::rendezvous
