#include "rendezvous/state/sqlite/sqlite_state.h"

#include <iterator>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"

namespace muster::rendezvous {

namespace {

constexpr Duration retry_interval = 200ms;
constexpr Duration complaint_interval = 10s;
constexpr Duration open_interval = 1s;

using Whole = std::pair<std::unique_ptr<SqliteFile>, KeptState>;

/// Opens the file and reads its records. bad_frame: they are unusable.
Result<Whole> read_whole(const std::string& path) {
    auto file = MUSTER_TRY(SqliteFile::open(path));
    auto records = MUSTER_TRY(file->read());
    auto kept = decode_state(records);
    if (!kept) return with_context(kept.error(), cat("the state file ", path));
    return std::pair(std::move(file), std::move(*kept));
}

/// The same, with an empty file in place of an unusable one.
Result<Whole> read_or_set_aside(const std::string& path) {
    auto whole = read_whole(path);
    if (!whole && whole.error().code == Errc::bad_frame) {
        const auto why = whole.error().context;
        const auto aside = set_aside(path);
        if (!aside) return with_context(aside.error(), why);
        log(LogLevel::error, why, "; renamed to ", *aside,
            "; this daemon starts with an empty state, and the agents of running jobs send theirs again");
        whole = read_whole(path);
    }
    if (whole && whole->first->was_empty())
        log(LogLevel::warning, "the state file ", path,
            " was empty (0 bytes), so its contents are lost; this daemon starts with an empty state, and the agents of "
            "running jobs send theirs again");
    return whole;
}

}  // namespace

Result<SqliteState::Opened> SqliteState::open(const std::string& path, PostToDaemon post) {
    auto whole = read_or_set_aside(path);
    if (!whole && whole.error().code != Errc::limit_exceeded) return whole.error();
    auto [file, kept] = whole ? *std::move(whole) : Whole();
    auto state = std::unique_ptr<SqliteState>(new SqliteState(std::move(file), std::move(post)));
    const auto error = whole ? Error{} : whole.error();
    state->thread_ = MUSTER_TRY(start_thread("state", [writer = state.get(), path, error] {
        if (writer->file_ || writer->open_later(path, error)) writer->work();
    }));
    return Opened{std::move(state), std::move(kept)};
}

SqliteState::SqliteState(std::unique_ptr<SqliteFile> file, PostToDaemon post)
    : opens_later_(!file), file_(std::move(file)), post_(std::move(post)) {}

/// Tries to open the file until there is room on its disk. False when the state is being destroyed.
bool SqliteState::open_later(const std::string& path, Error error) {
    std::string said;
    for (;;) {
        if (error.context != said) {
            said = error.context;
            log(LogLevel::error, said, "; no job is served until the state can be opened, which is tried each second");
            tell([said](SqliteState& state) {
                if (state.failing) state.failing(said);
            });
        }
        {
            std::unique_lock lock(mutex_);
            if (changed_.wait_for(lock, open_interval, [this] { return stopping_; })) return false;
        }
        auto whole = read_or_set_aside(path);
        if (!whole) {
            error = whole.error();
            continue;
        }
        file_ = std::move(whole->first);
        log(LogLevel::warning, "the state file ", path, " is open now");
        tell([kept = std::move(whole->second)](SqliteState& state) {
            if (state.leads) state.leads(kept);
        });
        return true;
    }
}

SqliteState::~SqliteState() {
    *self_ = nullptr;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void SqliteState::write(std::uint64_t sequence, std::vector<Record> records) {
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back({sequence, std::move(records)});
    }
    changed_.notify_all();
}

void SqliteState::work() {
    for (;;) {
        std::deque<Step> steps;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            steps.swap(waiting_);
        }
        if (!write_all(steps)) return;
        tell([sequence = steps.back().sequence](SqliteState& state) {
            if (state.persisted) state.persisted(sequence);
        });
    }
}

void SqliteState::tell(std::function<void(SqliteState&)> what) {
    post_([self = self_, what = std::move(what)] {
        if (*self != nullptr) what(**self);
    });
}

/// Writes one transaction, with retries. False when the state is being destroyed and the write failed.
bool SqliteState::write_all(std::deque<Step>& steps) {
    Instant complained = Instant::min();
    for (;;) {
        std::vector<Record> records;
        for (const auto& step : steps) records.insert(records.end(), step.records.begin(), step.records.end());
        const auto done = file_->write(records);
        const auto now = std::chrono::steady_clock::now();
        if (done) {
            if (complained != Instant::min())
                log(LogLevel::warning, "the state is written again; the waiting decisions are sent now");
            return true;
        }
        if (complained == Instant::min() || now - complained >= complaint_interval) {
            complained = now;
            log(LogLevel::error, done.error().context,
                "; running rounds continue, but new decisions wait until the state can be written (", steps.size(),
                " steps wait)");
            tell([why = done.error().context](SqliteState& state) {
                if (state.failing) state.failing(why);
            });
        }
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, retry_interval, [this] { return stopping_; })) return false;
        std::move(waiting_.begin(), waiting_.end(), std::back_inserter(steps));
        waiting_.clear();
    }
}

}  // namespace muster::rendezvous
