#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "muster/muster_group.h"
#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"
#include "worker_runtime/context/met_group.h"

using namespace muster;
using namespace muster::capi;

namespace {

constexpr std::size_t why_bytes_max = 1024;

/// The caller's store as a meeting place. Meetings have numbers, with which their keys begin. A member's next one is
/// the lowest that it did not come to and that no member has seen fail. So those whose meeting failed, and those who
/// never came to it, meet next time.
class CallersStore final : public runtime::MeetingPlace {
  public:
    explicit CallersStore(const muster_group_store& store) : store_(store) {}

    Result<void> begin(int rank) {
        const std::string own = cat("muster/openings/", rank);
        const auto last = MUSTER_TRY(add(own, 0));
        for (auto number = last + 1;; ++number) {
            prefix_ = cat("muster/", number, "/");
            const auto failures = MUSTER_TRY(add(cat(prefix_, "failed"), 0));
            if (failures > 0) continue;
            const auto come = add(own, number - last);
            return come ? Result<void>() : come.error();
        }
    }

    /// A store that cannot be reached now is the next meeting's error.
    void has_failed() { (void)add(cat(prefix_, "failed"), 1); }

    Result<void> publish(std::string_view key, std::string_view value, Instant /*deadline*/) override {
        const std::lock_guard lock(mutex_);
        const std::string full = cat(prefix_, key);
        char why[why_bytes_max] = "";
        return result(store_.set(store_.argument, full.c_str(), value.data(), value.size(), why, sizeof why), "set",
                      full, why);
    }

    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys,
                                             const runtime::MeetingWait& wait) override {
        MUSTER_TRY(wait_for(keys, wait));
        std::vector<std::string> values;
        for (const auto& key : keys) {
            values.push_back(MUSTER_TRY(get(cat(prefix_, key))));
        }
        return values;
    }

  private:
    Result<std::int64_t> add(const std::string& key, std::int64_t delta) {
        const std::lock_guard lock(mutex_);
        std::int64_t sum = 0;
        char why[why_bytes_max] = "";
        auto added = result(store_.add(store_.argument, key.c_str(), delta, &sum, why, sizeof why), "add to", key, why);
        return added ? Result<std::int64_t>(sum) : added.error();
    }

    static Result<void> result(muster_status status, std::string_view did, const std::string& key, const char* why) {
        if (status == MUSTER_OK) return {};
        return Error{code_of(status).value_or(Errc::io), cat("the group's store cannot ", did, " ", key, ": ", why)};
    }

    /// One key after another, so that a timeout names the first that is missing. A part of another communicator looks
    /// at that one meanwhile.
    Result<void> wait_for(const std::vector<std::string>& keys, const runtime::MeetingWait& wait) {
        for (std::size_t next = 0; next < keys.size();) {
            const auto now = std::chrono::steady_clock::now();
            const auto until = wait.next_check(now);
            const std::string full = cat(prefix_, keys[next]);
            const char* const one = full.c_str();
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(std::max<Duration>(until - now, 1ms)).count();
            char why[why_bytes_max] = "";
            muster_status status = MUSTER_OK;
            {
                const std::lock_guard lock(mutex_);
                status = store_.wait(store_.argument, &one, 1, left, why, sizeof why);
            }
            if (status == MUSTER_OK) {
                ++next;
                continue;
            }
            if (status != MUSTER_TIMED_OUT) return result(status, "wait for", full, why);
            MUSTER_TRY(wait.check_alive());
            if (std::chrono::steady_clock::now() >= wait.deadline)
                return Error{Errc::timed_out, cat(keys[next], " was not published")};
        }
        return {};
    }

    Result<std::string> get(const std::string& key) {
        const std::lock_guard lock(mutex_);
        std::string value;
        const auto take = [](void* to, const void* bytes, std::size_t size) {
            static_cast<std::string*>(to)->assign(static_cast<const char*>(bytes), size);
        };
        char why[why_bytes_max] = "";
        MUSTER_TRY(result(store_.get(store_.argument, key.c_str(), take, &value, why, sizeof why), "get", key, why));
        return value;
    }

    const muster_group_store store_;
    std::mutex mutex_;
    std::string prefix_;
};

/// `place`: where the group meets; stays null if it has one rank.
Result<runtime::MetGroupTerms> read_terms(const muster_group_options& given, std::shared_ptr<CallersStore>& place) {
    runtime::MetGroupTerms terms;
    if (given.name == nullptr || given.name[0] == 0) return invalid("the group has no name");
    if (given.group_size < 1 || given.rank < 0 || given.rank >= given.group_size)
        return invalid(cat("rank ", given.rank, " of a group of ", given.group_size));
    terms.name = given.name;
    terms.rank = given.rank;
    terms.size = given.group_size;
    if (given.world_ranks != nullptr) terms.world_ranks.assign(given.world_ranks, given.world_ranks + given.group_size);
    const ContextOptions defaults;
    terms.meeting_timeout = MUSTER_TRY(read_timeout(given.meeting_timeout_ms, defaults.meeting_timeout));
    terms.operation_timeout = MUSTER_TRY(read_timeout(given.operation_timeout_ms, defaults.operation_timeout));
    terms.transport = MUSTER_TRY(read_enumerator<TransportChoice>(given.transport, 5, "transport"));
    if (given.store == nullptr)
        return given.group_size == 1 ? Result<runtime::MetGroupTerms>(std::move(terms))
                                     : invalid("a group of more than one rank needs a store to meet by");
    const auto store = MUSTER_TRY(read(given.store));
    if (store.set == nullptr || store.get == nullptr || store.add == nullptr || store.wait == nullptr)
        return invalid("the store lacks one of set, get, add and wait");
    if (given.group_size == 1) return terms;
    place = std::make_shared<CallersStore>(store);
    MUSTER_TRY(place->begin(terms.rank));
    terms.place = place;
    return terms;
}

}  // namespace

extern "C" {

muster_status muster_group_open(const muster_group_options* options, muster_communicator** group) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(group, "group", nullptr));
        const auto given = MUSTER_TRY(read(options));
        std::shared_ptr<CallersStore> place;
        auto terms = MUSTER_TRY(read_terms(given, place));
        auto opened = runtime::MetGroups::of_process().open(std::move(terms));
        if (place && !opened) place->has_failed();
        if (!opened) return opened.error();
        *group =
            communicators.add(std::make_shared<CommunicatorObject>(std::shared_ptr<Context>(), std::move(*opened)));
        return {};
    });
}
}
