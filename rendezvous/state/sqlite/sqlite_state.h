// The daemon's state in an SQLite file, written by a thread of its own: the daemon never waits for a disk, only those
// of its words that tell what is not kept yet.
//
// All steps that wait when the thread comes back from the disk go into one transaction. A write that fails (a full
// disk) is said, and tried again until it succeeds: rounds that run go on meanwhile, and nothing new is decided aloud,
// because what was told and not kept could not be honoured by the next daemon.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "rendezvous/rounds/job_record.h"
#include "rendezvous/state/sqlite/sqlite_file.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

class SqliteState final : public StateStore {
  public:
    struct Opened {
        std::unique_ptr<SqliteState> state;
        KeptState kept;
    };

    /// `post` outlives the state. A file that is damaged or of another version is moved aside, which is logged, and the
    /// state begins empty. Other errors are SqliteFile::open's.
    static Result<Opened> open(const std::string& path, PostToDaemon post);
    /// Writes what waits, if the disk takes it at the first try.
    ~SqliteState() override;

    void write(std::uint64_t sequence, std::vector<Record> records) override;

  private:
    struct Step {
        std::uint64_t sequence = 0;
        std::vector<Record> records;
    };

    SqliteState(std::unique_ptr<SqliteFile> file, PostToDaemon post);
    void work();
    bool write_all(std::deque<Step>& steps);
    /// Runs `what` on the daemon's thread, unless this is gone by then.
    void tell(std::function<void(SqliteState&)> what);

    std::unique_ptr<SqliteFile> file_;
    PostToDaemon post_;
    /// Posted words find nobody once this is gone. Touched on the daemon's thread alone.
    std::shared_ptr<SqliteState*> self_ = std::make_shared<SqliteState*>(this);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Step> waiting_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace muster::rendezvous
