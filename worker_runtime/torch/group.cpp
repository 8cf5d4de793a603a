#include "worker_runtime/torch/group.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "muster/muster_group.h"
#include "muster/muster_moves.h"

namespace muster::torch_backend {

namespace {

/// The groups of the process, for its end.
struct AllGroups {
    std::mutex mutex;
    std::set<Group*> groups;

    static AllGroups& of_process() { return of_this_process<AllGroups>(); }
};

void write_why(char* why, std::size_t capacity, const char* text) {
    if (capacity == 0) return;
    std::strncpy(why, text, capacity - 1);
    why[capacity - 1] = 0;
}

/// Runs `body(store)`; no exception leaves it.
muster_status ask(void* argument, char* why, std::size_t capacity, auto&& body) {
    try {
        return body(*static_cast<MeetingStore*>(argument));
    } catch (const std::exception& exception) {
        write_why(why, capacity, exception.what());
    } catch (...) {
        write_why(why, capacity, "an exception of an unknown kind");
    }
    return MUSTER_UNREACHABLE;
}

muster_group_store callbacks(MeetingStore& store) {
    muster_group_store out{};
    out.size = sizeof out;
    out.argument = &store;
    out.set = [](void* argument, const char* key, const void* value, size_t size, char* why, size_t capacity) {
        return ask(argument, why, capacity, [&](MeetingStore& to) {
            to.set(key, value, size);
            return MUSTER_OK;
        });
    };
    out.get = [](void* argument, const char* key, void (*take)(void*, const void*, size_t), void* to, char* why,
                 size_t capacity) {
        return ask(argument, why, capacity, [&](MeetingStore& from) {
            const auto value = from.get(key);
            take(to, value.data(), value.size());
            return MUSTER_OK;
        });
    };
    out.add = [](void* argument, const char* key, int64_t delta, int64_t* sum, char* why, size_t capacity) {
        return ask(argument, why, capacity, [&](MeetingStore& to) {
            *sum = to.add(key, delta);
            return MUSTER_OK;
        });
    };
    out.wait = [](void* argument, const char* const* keys, size_t count, int64_t timeout_ms, char* why,
                  size_t capacity) {
        return ask(argument, why, capacity, [&](MeetingStore& at) {
            return at.wait_for({keys, keys + count}, timeout_ms) ? MUSTER_OK : MUSTER_TIMED_OUT;
        });
    };
    return out;
}

}  // namespace

CollectivesMark::CollectivesMark(std::uint32_t mark) {
    muster_tag_collectives(mark);
}

CollectivesMark::~CollectivesMark() {
    muster_tag_collectives(0);
}

Group::Group(GroupTerms terms) : terms_(std::move(terms)), process_(::getpid()), forks_(fork_count) {
    if (muster_api_version() < MUSTER_API_VERSION)
        throw GroupError(MUSTER_UNSUPPORTED,
                         "libmuster.so is older than the back end for torch; install both together");
    const auto store = terms_.store ? callbacks(*terms_.store) : muster_group_store{};
    muster_group_options options{};
    options.size = sizeof options;
    options.name = terms_.name.c_str();
    options.rank = terms_.rank;
    options.group_size = terms_.size;
    options.world_ranks = terms_.world_ranks.empty() ? nullptr : terms_.world_ranks.data();
    options.store = terms_.store ? &store : nullptr;
    options.meeting_timeout_ms = terms_.timeout_ms;
    options.operation_timeout_ms = terms_.timeout_ms;
    check(muster_group_open(&options, &handle_));
    auto& all = AllGroups::of_process();
    const std::lock_guard lock(all.mutex);
    all.groups.insert(this);
}

Group::~Group() {
    auto& all = AllGroups::of_process();
    {
        const std::lock_guard lock(all.mutex);
        all.groups.erase(this);
    }
    if (!is_forked()) muster_communicator_release(handle_);
}

void Group::check(muster_status status) const {
    if (status != MUSTER_OK) throw GroupError(status, muster_last_error());
}

void Group::check_usable() const {
    if (has_left_)
        throw GroupError(MUSTER_ROUND_ENDED,
                         "the group " + terms_.name +
                             " is of a round that has ended: call init_process_group() again, and make anew "
                             "whatever has used the group");
    if (!is_forked()) return;
    throw GroupError(MUSTER_UNSUPPORTED,
                     "process " + std::to_string(::getpid()) + " is a forked child of process " +
                         std::to_string(process_) + ", which made the group " + terms_.name +
                         ": a child cannot use it; start processes with the \"spawn\" method, or call "
                         "init_process_group() in the child");
}

std::string Group::transport() const {
    char text[64] = "";
    check(muster_communicator_transport(handle_, text, sizeof text, nullptr));
    return text;
}

void Group::barrier(std::int64_t timeout) const {
    check(muster_barrier(handle_, timeout, nullptr));
}

void Group::broadcast(const Piece& piece, int root, std::int64_t timeout) const {
    check(muster_broadcast(handle_, piece.data, piece.count, piece.type, root, timeout, nullptr));
}

void Group::all_gather(const Piece& piece, void* output, std::int64_t timeout) const {
    check(muster_all_gather(handle_, piece.data, output, piece.count, piece.type, timeout, nullptr));
}

void Group::all_to_all_uneven(const void* input, const std::vector<std::size_t>& sent, void* output,
                              const std::vector<std::size_t>& expected, int type, std::int64_t timeout) const {
    muster_parts parts{};
    parts.size = sizeof parts;
    parts.sent_counts = sent.data();
    parts.expected_counts = expected.data();
    check(muster_all_to_all_uneven(handle_, input, output, type, &parts, timeout, nullptr));
}

void Group::gather(const Piece& piece, void* output, int root, std::int64_t timeout) const {
    check(muster_gather(handle_, piece.data, output, piece.count, piece.type, root, timeout, nullptr));
}

void Group::scatter(const void* input, const Piece& piece, int root, std::int64_t timeout) const {
    check(muster_scatter(handle_, input, piece.data, piece.count, piece.type, root, timeout, nullptr));
}

void Group::reduce(void* data, std::size_t count, const Reduction& reduction, int root, std::int64_t timeout) const {
    count *= reduction.parts;
    if (reduction.reduce == MUSTER_PREMUL_SUM)
        return check(
            muster_reduce_premul(handle_, data, data, count, reduction.type, reduction.factor, root, timeout, nullptr));
    check(muster_reduce(handle_, data, data, count, reduction.type, reduction.reduce, root, timeout, nullptr));
}

void Group::all_reduce(void* data, std::size_t count, const Reduction& reduction, std::int64_t timeout) const {
    count *= reduction.parts;
    if (reduction.reduce == MUSTER_PREMUL_SUM)
        return check(
            muster_all_reduce_premul(handle_, data, count, reduction.type, reduction.factor, timeout, nullptr));
    check(muster_all_reduce(handle_, data, count, reduction.type, reduction.reduce, timeout, nullptr));
}

void Group::reduce_scatter(const void* input, void* output, std::size_t count, const Reduction& reduction,
                           std::int64_t timeout) const {
    count *= reduction.parts;
    if (reduction.reduce == MUSTER_PREMUL_SUM)
        return check(muster_reduce_scatter_premul(handle_, input, output, count, reduction.type, reduction.factor,
                                                  timeout, nullptr));
    check(muster_reduce_scatter(handle_, input, output, count, reduction.type, reduction.reduce, timeout, nullptr));
}

void Group::send(const Piece& piece, int peer, std::uint32_t tag, std::int64_t timeout) const {
    check(muster_send_tagged(handle_, piece.data, piece.count, piece.type, peer, tag, timeout, nullptr));
}

void Group::receive(const Piece& piece, int peer, std::uint32_t tag, std::int64_t timeout) const {
    check(muster_receive_tagged(handle_, piece.data, piece.count, piece.type, peer, tag, timeout, nullptr));
}

int Group::receive_any(const Piece& piece, std::uint32_t tag, std::int64_t timeout) const {
    int peer = -1;
    check(muster_receive_any(handle_, piece.data, piece.count, piece.type, tag, timeout, &peer));
    return peer;
}

void* Group::host_memory(std::size_t size_bytes, std::string& why) {
    void* data = nullptr;
    if (muster_host_memory_allocate(size_bytes, &data) == MUSTER_OK) return data;
    why = muster_last_error();
    return nullptr;
}

void Group::release_host_memory(void* data) {
    (void)muster_host_memory_release(data);
}

void Group::abort(const std::string& why) const {
    muster_communicator_abort(handle_, why.c_str());
}

muster_status Group::status() const {
    return muster_communicator_status(handle_);
}

std::shared_ptr<Lane> Group::lane(int peer, bool sends) {
    const std::lock_guard lock(lanes_mutex_);
    auto& lane = lanes_[{peer, sends}];
    if (!lane) lane = std::make_shared<Lane>();
    return lane;
}

bool Group::is_idle() const {
    const std::lock_guard lock(lanes_mutex_);
    return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane.second->is_idle(); });
}

/// Calls `goes_on` between two looks, until it returns false or nothing is in progress. Returns is_idle().
bool Group::look_until_idle(const std::function<bool()>& goes_on) const {
    for (auto pause = std::chrono::microseconds(100); !is_idle();
         pause = std::min(pause * 2, std::chrono::microseconds(10000))) {
        if (!goes_on()) return is_idle();
        ::usleep(static_cast<useconds_t>(pause.count()));
    }
    return true;
}

void Group::settle(std::chrono::steady_clock::time_point deadline) const {
    if (is_forked()) return;
    (void)look_until_idle([&] {
        if (status() != MUSTER_OK) return false;  // what is in progress ends by itself
        if (std::chrono::steady_clock::now() < deadline) return true;
        abort("rank " + std::to_string(rank()) + " has ended while operations were in progress");
        return false;
    });
}

void Group::end_all(std::chrono::steady_clock::time_point deadline) {
    auto& all = AllGroups::of_process();
    const std::lock_guard lock(all.mutex);
    for (const auto* const group : all.groups) group->settle(deadline);
}

bool Group::leave_all(const std::string& why, std::chrono::steady_clock::time_point deadline) {
    auto& all = AllGroups::of_process();
    const std::lock_guard lock(all.mutex);
    for (const auto* const group : all.groups) group->abort(why);
    for (const auto* const group : all.groups)
        if (!group->look_until_idle([&] { return std::chrono::steady_clock::now() < deadline; })) return false;
    for (auto* const group : all.groups) {
        group->has_left_ = true;
        muster_communicator_release(group->handle_);
    }
    return true;
}

}  // namespace muster::torch_backend
