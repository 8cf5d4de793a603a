#include "worker_runtime/shared_memory/shared_group.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/shared_memory/host_memory.h"

namespace muster::runtime {

namespace {

/// How long a rank looks for the reason of a failure: who is at its deadline may ask other nodes first.
constexpr Duration failure_text_limit = 3s;

int cores_of_this_process() {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

/// One allocate(): every rank's memory, in rank order.
struct SharedGroup::Region {
    std::vector<SharedSegment> segments;
    std::span<std::byte> own;
};

SharedGroup::SharedGroup(const GroupTerms& terms, LocalMeeting meeting, std::shared_ptr<FdWatch> watch)
    : rank_(terms.rank),
      size_(terms.size),
      id_(terms.id),
      layout_(terms.size),
      meeting_(std::move(meeting)),
      watch_(std::move(watch)),
      lent_(static_cast<std::size_t>(terms.size)),
      met_(static_cast<std::size_t>(terms.size)),
      message_waits_(new std::atomic<int>[static_cast<std::size_t>(terms.size)]()),
      crowded_(terms.size > cores_of_this_process()) {}

Result<std::unique_ptr<SharedGroup>> SharedGroup::form(const GroupTerms& terms, LocalDoor door,
                                                       std::vector<LocalIdentity> identities,
                                                       std::shared_ptr<FdWatch> watch, const MeetingWait& wait) {
    if (!terms.security.key.empty())
        for (auto& one : identities) one.key = terms.security.key;
    auto meeting = LocalMeeting::hold(terms.rank, std::move(door), std::move(identities), wait);
    if (!meeting) return with_context(meeting.error(), cat("communicator ", terms.id));
    std::unique_ptr<SharedGroup> group(new SharedGroup(terms, std::move(*meeting), std::move(watch)));
    MUSTER_TRY(group->share_segments(wait));
    MUSTER_TRY(group->watch_peers(wait));
    return group;
}

SharedGroup::~SharedGroup() {
    for (const auto id : watched_) watch_->remove(id);
    if (segments_.empty()) return;
    mark_left(line(rank_).step);
    for (int other = 0; other < size_; ++other) {
        mark_left(channel(rank_, other).filled);
        mark_left(channel(other, rank_).emptied);
    }
}

Result<std::vector<SharedSegment>> SharedGroup::share_memory(std::size_t own_bytes,
                                                             const std::vector<std::size_t>& all_bytes,
                                                             const std::string& purpose, const MeetingWait& wait) {
    auto own = SharedSegment::create(own_bytes, purpose);
    static const FileDescriptor nothing;
    shares_ = true;
    auto all = meeting_.share(own ? own->descriptor() : nothing, own ? "" : own.error().context, wait);
    shares_ = false;
    if (!all) return all.error();
    std::vector<SharedSegment> segments(static_cast<std::size_t>(size_));
    for (std::size_t i = 0; i < segments.size(); ++i) {
        if (static_cast<int>(i) == rank_) continue;
        auto mapped = SharedSegment::map((*all)[i], all_bytes[i]);
        if (!mapped) {
            auto error = with_context(mapped.error(), who(static_cast<int>(i)));
            // The others have mapped theirs, and count one region more: it is the group's end.
            if (error.code == Errc::limit_exceeded) error.code = Errc::io;
            return error;
        }
        segments[i] = std::move(*mapped);
    }
    own->close_descriptor();
    segments[static_cast<std::size_t>(rank_)] = std::move(*own);
    return segments;
}

Result<void> SharedGroup::share_segments(const MeetingWait& wait) {
    std::vector<std::size_t> sizes(static_cast<std::size_t>(size_), layout_.follower_bytes);
    sizes[0] = layout_.leader_bytes;
    segments_ =
        MUSTER_TRY(share_memory(sizes[static_cast<std::size_t>(rank_)], sizes, cat("communicator ", id_), wait));
    return {};
}

Result<void> SharedGroup::watch_peers(const MeetingWait& wait) {
    const FileDescriptor own(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    const std::string trouble = own.valid() ? "" : error_from_errno(errno, "open a descriptor of this process").context;
    peers_ = MUSTER_TRY(meeting_.share(own, trouble, wait));
    for (int rank = 0; rank < size_; ++rank) {
        if (rank == rank_) continue;
        auto id = MUSTER_TRY(watch_->add(peers_[static_cast<std::size_t>(rank)], [this, rank] {
            peer_ended(rank);
            return false;
        }));
        watched_.push_back(id);
    }
    return {};
}

void SharedGroup::peer_ended(int rank) {
    // One that left in order may end; whoever still waits for it finds that it has left.
    if (!has_left(line(rank).step)) fail(Errc::peer_closed, cat(who(rank), " died"));
}

RankLine& SharedGroup::line(int rank) const {
    return reinterpret_cast<RankLine*>(segments_[0].data() + layout_.lines)[rank];
}

GroupHeader& SharedGroup::header() const {
    return *reinterpret_cast<GroupHeader*>(segments_[0].data());
}

std::byte* SharedGroup::window(int rank) const {
    return segments_[static_cast<std::size_t>(rank)].data() + (rank == 0 ? layout_.windows : 0) +
           (turns_ & 1) * window_bytes;
}

ChannelLine& SharedGroup::channel(int from, int to) const {
    return reinterpret_cast<ChannelLine*>(segments_[0].data() + layout_.channels)[from * size_ + to];
}

std::byte* SharedGroup::channel_slot(int from, int to, std::uint64_t number) const {
    const auto first = static_cast<std::size_t>(from * size_ + to) * channel_slot_count;
    return segments_[0].data() + layout_.slots + (first + number % channel_slot_count) * channel_slot_bytes(size_);
}

Spin SharedGroup::spin(WaitMode patience) const {
    if (patience == WaitMode::frugal) return {.pauses = 100, .yields = 1};
    return crowded_ ? Spin{.pauses = 20, .yields = 100} : Spin{.pauses = 4000, .yields = 50};
}

// ---- steps ----

Result<void> SharedGroup::sign(const Operation& operation, bool copied) {
    operation_ = operation;
    ++operations_;
    Signature& own = met_[static_cast<std::size_t>(rank_)];
    own = {.count = operation.count,
           .weight = operation.weight,
           .tag = operation.tag,
           .peer = operation.peer,
           .kind = operation.kind,
           .type = operation.type,
           .reduce = operation.reduce,
           .copied = copied ? std::uint8_t{1} : std::uint8_t{0}};
    if (!copied) locate(operation.input, own);
    own_lent_ = own.region & HostMemory::region_bit ? own.region : 0;
    line(rank_).signatures[operations_ & 1] = own;
    if (!publish_step(line(rank_).step)) return failure();
    ++steps_;
    return {};
}

Result<void> SharedGroup::meet(const Operation& operation, bool copied, const RunTerms& terms) {
    MUSTER_TRY(sign(operation, copied));
    MUSTER_TRY(await_all(terms));
    MUSTER_TRY(take_signatures());
    MUSTER_TRY(compare_signatures());
    return map_new_regions(terms);
}

/// Signatures are kept by parity, and the one before this is still there to be compared: nobody ends an operation that
/// it has announced before all others have begun it, nor begins one by meeting before all others have signed.
Result<void> SharedGroup::announce(const Operation& operation) {
    return sign(operation, true);
}

Result<void> SharedGroup::step(const RunTerms& terms) {
    if (!publish_step(line(rank_).step)) return failure();
    ++steps_;
    return await_all(terms);
}

Result<void> SharedGroup::await_all(const RunTerms& terms) {
    const Spin budget = spin(terms.patience);
    for (int other = 0; other < size_; ++other) {
        if (other == rank_) continue;
        const auto end = await_step(line(other).step, steps_, budget, terms.deadline);
        if (end == WaitEnd::reached) continue;
        const auto doing = cat("operation ", operations_, " (", describe(operation_), ")");
        std::vector<int> behind;
        for (int rank = 0; rank < size_; ++rank)
            if (is_behind(rank)) behind.push_back(rank);
        if (behind.empty()) behind.push_back(other);  // it has come just now, too late
        return end_of_wait(end, other, behind, WaitIn::collective, doing);
    }
    return {};
}

Result<void> SharedGroup::await_message(int from, StepWord& word, std::uint64_t step, const Operation& operation,
                                        const RunTerms& terms) {
    auto& waits = message_waits_[static_cast<std::size_t>(from)];
    ++waits;
    const auto end = await_step(word, step, spin(terms.patience), terms.deadline);
    const Result<void> come =
        end == WaitEnd::reached ? Result<void>() : end_of_wait(end, from, {from}, WaitIn::message, describe(operation));
    --waits;
    return come;
}

/// Copies the others' signatures out of the shared memory, and checks what will be looked up by them.
Result<void> SharedGroup::take_signatures() {
    for (int rank = 0; rank < size_; ++rank)
        if (rank != rank_) met_[static_cast<std::size_t>(rank)] = line(rank).signatures[operations_ & 1];
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler does not read the originals a second time
    for (int rank = 0; rank < size_; ++rank) {
        const Signature& theirs = signature(rank);
        if (!is_known(theirs.kind, theirs.type, theirs.reduce))
            return corrupted(rank, "an operation of an unknown kind");
        if (theirs.region & HostMemory::region_bit) continue;  // common_memory() checks it
        if (theirs.region > regions_.size())
            return corrupted(rank, cat("memory region ", theirs.region, " of ", regions_.size()));
        if (theirs.region > 0 && theirs.offset >= regions_[theirs.region - 1].size_bytes)
            return corrupted(rank, cat("offset ", theirs.offset, " in a memory region of ",
                                       regions_[theirs.region - 1].size_bytes, " bytes"));
    }
    return {};
}

Result<void> SharedGroup::compare_signatures() {
    const auto same = [](const Signature& a, const Signature& b) {
        return a.kind == b.kind && a.type == b.type && a.reduce == b.reduce && a.count == b.count && a.peer == b.peer &&
               a.tag == b.tag;
    };
    const auto words = [this](int rank) {
        const Signature& theirs = signature(rank);
        const Operation as_operation{.kind = theirs.kind,
                                     .type = theirs.type,
                                     .reduce = theirs.reduce,
                                     .count = theirs.count,
                                     .peer = theirs.peer};
        if (theirs.kind == OperationKind::barrier && theirs.count > 0)
            return cat(who(rank), " runs allocate ", theirs.count, " bytes");
        return cat(who(rank), " runs ", describe(as_operation), theirs.tag != 0 ? cat(" tagged ", theirs.tag) : "");
    };
    int differing = 1;
    while (differing < size_ && same(signature(0), signature(differing))) ++differing;
    if (differing == size_) return {};
    // Named second, and blamed for it by the agent: the rank that the fewest agree with, the higher one if in doubt.
    const auto agreeing = [&](int rank) {
        int count = 0;
        for (int other = 0; other < size_; ++other) count += same(signature(rank), signature(other)) ? 1 : 0;
        return count;
    };
    int usual = 0;
    int odd = 0;
    for (int rank = 1; rank < size_; ++rank) {
        if (agreeing(rank) > agreeing(usual)) usual = rank;
        if (agreeing(rank) <= agreeing(odd)) odd = rank;
    }
    if (usual == odd) usual = same(signature(0), signature(odd)) ? differing : 0;
    return fail(Errc::invalid_argument, cat("ranks differ in operation ", operations_, " of communicator ", id_, ": ",
                                            words(usual), ", ", words(odd)));
}

// ---- memory ----

void SharedGroup::locate(const void* data, Signature& signature) const {
    for (std::size_t i = 0; i < regions_.size(); ++i) {
        const auto region = regions_[i].memory.lock();
        if (!region) continue;
        const auto offset = static_cast<const std::byte*>(data) - region->own.data();
        if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(region->own.size())) continue;
        signature.region = static_cast<std::uint32_t>(i + 1);
        signature.offset = static_cast<std::uint64_t>(offset);
        return;
    }
    const auto lent = HostMemory::of_process().find(data);
    signature.region = lent.region;
    signature.offset = lent.offset;
}

bool SharedGroup::is_new_region(int rank) const {
    const auto region = signature(rank).region;
    return (region & HostMemory::region_bit) != 0 && !lent_[static_cast<std::size_t>(rank)].contains(region);
}

/// All ranks see the same signatures, so a region of HostMemory is new to all of them in the same operation: there each
/// passes what is new of its own to the others.
Result<void> SharedGroup::map_new_regions(const RunTerms& terms) {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank)
        if (is_new_region(rank)) ranks.push_back(rank);
    if (ranks.empty()) return {};
    // A rank without a new region passes a descriptor that nobody looks at.
    auto own = is_new_region(rank_) ? HostMemory::of_process().descriptor(signature(rank_).region)
                                    : Result<FileDescriptor>(FileDescriptor(::memfd_create("muster", MFD_CLOEXEC)));
    if (own && !own->valid()) own = error_from_errno(errno, "make a descriptor for the meeting");
    // The others wait for this rank's descriptor, so they must learn of it now.
    if (!own) return fail(own.error().code, with_context(own.error(), who(rank_)).context);
    const MeetingWait wait(terms.deadline, std::make_shared<ParentGroup>([this] { return check_alive(); }, size_));
    shares_ = true;
    auto all = meeting_.share(*own, "", wait);
    shares_ = false;
    if (!all) return fail(all.error().code, all.error().context);
    for (const int rank : ranks) {
        const auto place = static_cast<std::size_t>(rank);
        auto mapped = rank == rank_ ? Result<SharedSegment>(SharedSegment()) : SharedSegment::map((*all)[place]);
        // The others have mapped theirs, and use them in this operation: it is the group's end.
        if (!mapped) return fail(Errc::io, with_context(mapped.error(), who(rank)).context);
        lent_[place].emplace(signature(rank).region, std::move(*mapped));
    }
    return {};
}

Result<std::vector<void*>> SharedGroup::common_memory(std::size_t size_bytes) {
    const auto first = signature(0).region;
    const bool is_lent = (first & HostMemory::region_bit) != 0;
    std::vector<void*> places;
    for (int rank = 0; rank < size_; ++rank) {
        const auto region = signature(rank).region;
        if (is_lent ? (region & HostMemory::region_bit) == 0 : region == 0 || region != first) return places;
    }
    const auto allocated = is_lent ? nullptr : regions_[first - 1].memory.lock();
    if (!is_lent && !allocated) return places;
    for (int rank = 0; rank < size_; ++rank) {
        const auto number = static_cast<std::size_t>(rank);
        if (is_lent && rank == rank_) {
            places.push_back(const_cast<void*>(operation_.input));
            continue;
        }
        const auto offset = signature(rank).offset;
        const SharedSegment& segment = is_lent ? lent_[number].at(signature(rank).region) : allocated->segments[number];
        if (offset > segment.size_bytes() || size_bytes > segment.size_bytes() - offset)
            return corrupted(rank, cat(size_bytes, " bytes at offset ", offset, " in a memory region of ",
                                       segment.size_bytes(), " bytes"));
        places.push_back(segment.data() + offset);
    }
    return places;
}

bool SharedGroup::is_shared(const void* data) const {
    Signature scratch;
    locate(data, scratch);
    return scratch.region != 0;
}

bool SharedGroup::all_copied() const {
    for (int other = 0; other < size_; ++other) {
        if (signature(other).copied == 0) return false;
    }
    return true;
}

std::vector<double> SharedGroup::weights() const {
    std::vector<double> weights;
    for (int other = 0; other < size_; ++other) weights.push_back(signature(other).weight);
    if (std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 1; })) return {};
    return weights;
}

Result<Memory> SharedGroup::allocate(std::size_t size_bytes, const RunTerms& terms) {
    // A wrong size on one rank is found here, before anybody maps memory that is shorter than it thinks.
    const Operation request{.kind = OperationKind::barrier, .count = size_bytes};
    MUSTER_TRY(meet(request, false, terms));
    const std::size_t mapped_bytes = std::max<std::size_t>((size_bytes + 4095) / 4096 * 4096, 4096);
    // Sockets are waited for here, which know nothing of an abort() or of what another rank has found.
    const MeetingWait wait(terms.deadline, std::make_shared<ParentGroup>([this] { return check_alive(); }, size_));
    auto segments = share_memory(mapped_bytes, std::vector(static_cast<std::size_t>(size_), mapped_bytes),
                                 cat("buffers of communicator ", id_), wait);
    if (!segments && segments.error().code != Errc::limit_exceeded)
        return fail(segments.error().code, segments.error().context);
    if (!segments) return segments.error();
    auto region = std::make_shared<Region>();
    region->segments = std::move(*segments);
    region->own = {region->segments[static_cast<std::size_t>(rank_)].data(), size_bytes};
    regions_.push_back({region, size_bytes});
    return Memory(std::shared_ptr<std::span<std::byte>>(region, &region->own));
}

// ---- failures ----

std::string SharedGroup::who(int rank) const {
    return describe(meeting_.identity(rank));
}

std::string SharedGroup::who(const std::vector<int>& ranks) const {
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(who(rank));
    return join(names, ", ");
}

/// Lockstep: no rank is ahead of another but in a step where it waits for that one.
bool SharedGroup::is_behind(int rank) const {
    return steps_of(line(rank).step) < steps_of(line(rank_).step) ||
           (shares_ && rank != rank_ && (rank_ == 0 || rank == 0));
}

std::vector<int> SharedGroup::awaited() const {
    std::vector<int> ranks;
    for (int other = 0; other < size_; ++other)
        if (is_behind(other) || message_waits_[static_cast<std::size_t>(other)] > 0) ranks.push_back(other);
    return ranks;
}

Error SharedGroup::end_of_wait(WaitEnd end, int rank, const std::vector<int>& late, WaitIn what,
                               const std::string& doing) {
    if (end == WaitEnd::left)
        return fail(Errc::peer_closed, cat(who(rank), " closed communicator ", id_, " before ", doing));
    if (end != WaitEnd::timed_out) return failure();
    const auto blamed = blame_ ? blame_(late, what) : Result<std::string>(who(late));
    if (!blamed) return fail(blamed.error().code, blamed.error().context);
    return fail(Errc::timed_out, cat(doing, " on communicator ", id_, " timed out: ", *blamed, " did not reach it"));
}

Result<void> SharedGroup::check_alive() const {
    if (has_failed(line(rank_).step)) return failure();
    return {};
}

Error SharedGroup::fail(Errc code, const std::string& text) {
    FailureRecord& record = header().failure;
    std::uint32_t expected = FailureRecord::none;
    if (record.state.compare_exchange_strong(expected, FailureRecord::being_written)) {
        record.code = static_cast<std::uint32_t>(code);
        ::strncpy(record.text, text.c_str(), sizeof record.text - 1);
        record.state.store(FailureRecord::written, std::memory_order_release);
    }
    for (int from = 0; from < size_; ++from) {
        mark_failed(line(from).step);
        for (int to = 0; to < size_; ++to) {
            mark_failed(channel(from, to).filled);
            mark_failed(channel(from, to).emptied);
        }
    }
    return failure();
}

Error SharedGroup::corrupted(int rank, const std::string& what) {
    return fail(Errc::bad_frame,
                cat(who(rank), " has ", what, " in the shared memory of communicator ", id_,
                    "; a stray write of a rank on this host may have damaged it: look for one with AddressSanitizer"));
}

Error SharedGroup::failure() const {
    // A late rank may still write there.
    if (const auto region = own_lent_.load(); region != 0) HostMemory::of_process().retire(region);
    const FailureRecord& record = header().failure;
    // A word may fail before its reason is written down; if the writer was killed just there, nobody will ever finish.
    const auto until = std::chrono::steady_clock::now() + failure_text_limit;
    // Whoever writes it needs a CPU, which hundreds of ranks that only yield do not leave it.
    for (int looks = 0; record.state.load(std::memory_order_acquire) != FailureRecord::written &&
                        std::chrono::steady_clock::now() < until;
         ++looks) {
        if (looks < 100)
            ::sched_yield();
        else
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (record.state.load(std::memory_order_acquire) != FailureRecord::written) {
        return {Errc::peer_closed, cat("communicator ", id_, ": a rank died while it reported a failure")};
    }
    const auto code = record.code <= static_cast<std::uint32_t>(last_errc) ? static_cast<Errc>(record.code) : Errc::io;
    return {code, std::string(record.text, ::strnlen(record.text, sizeof record.text))};
}

}  // namespace muster::runtime
