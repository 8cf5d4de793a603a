// The daemon's state in an SQLite file, written by its own thread, so that the daemon never waits for a disk. Only
// messages that depend on unwritten state wait.
//
// All steps that wait when the thread returns from the disk share one transaction. A failed write (a full disk) is
// logged and retried until it succeeds. Running rounds continue meanwhile, but no decision is sent: the next daemon
// could not honour a decision that was sent and not written.
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

    /// `post` must outlive the state. A damaged file, or one of another version, is renamed and logged, and the state
    /// starts empty. Without room on its disk, it is opened later: until then the daemon is a follower. Other errors:
    /// as SqliteFile::open.
    static Result<Opened> open(const std::string& path, PostToDaemon post);
    /// Tries once to write the queued steps.
    ~SqliteState() override;

    void write(std::uint64_t sequence, std::vector<Record> records) override;
    [[nodiscard]] bool starts_as_follower() const override { return opens_later_; }

  private:
    struct Step {
        std::uint64_t sequence = 0;
        std::vector<Record> records;
    };

    SqliteState(std::unique_ptr<SqliteFile> file, PostToDaemon post);
    void work();
    bool open_later(const std::string& path, Error error);
    bool write_all(std::deque<Step>& steps);
    /// Runs `what` on the daemon's thread, unless this is destroyed by then.
    void tell(std::function<void(SqliteState&)> what);

    const bool opens_later_;
    std::unique_ptr<SqliteFile> file_;
    PostToDaemon post_;
    /// Null after the destructor, for posted work. Accessed only on the daemon's thread.
    std::shared_ptr<SqliteState*> self_ = std::make_shared<SqliteState*>(this);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Step> waiting_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace muster::rendezvous
