#include "worker_runtime/tcp/tcp_lanes.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/mesh/tcp_socket.h"

namespace muster::runtime {

namespace {

constexpr std::size_t cache_line_bytes = 64;
/// Where a rank that is no partner has its streams.
constexpr std::size_t no_row = ~std::size_t{0};

Result<void> watch(const FileDescriptor& epoll, int fd, std::uint32_t events, std::uint64_t what) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = what;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) return error_from_errno(errno, "watch a connection");
    return {};
}

}  // namespace

// ---- setting up ----

Result<std::unique_ptr<TcpLanes>> TcpLanes::over(TcpGroup& group) {
    std::unique_ptr<TcpLanes> lanes(new TcpLanes(group));
    lanes->headers_.resize(static_cast<std::size_t>(group.size()));
    lanes->rows_.assign(static_cast<std::size_t>(group.size()), no_row);
    if (auto done = lanes->register_streams(); !done) return done.error();
    return lanes;
}

Result<void> TcpLanes::register_streams() {
    epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_.valid()) return error_from_errno(errno, "make an epoll descriptor");
    // Level-triggered: it stays readable for as long as there is a group to end.
    if (auto done = watch(epoll_, group_.wake().get(), EPOLLIN, wake_mark); !done) return done;
    // Every rank begins with another one, so that they do not all send to the same rank at the same time.
    auto peers = group_.partners();
    std::rotate(peers.begin(), std::upper_bound(peers.begin(), peers.end(), rank()), peers.end());
    for (const int peer : peers) {
        rows_[static_cast<std::size_t>(peer)] = streams_.size();
        const auto control = control_mark + static_cast<std::uint64_t>(peer);
        if (auto done = watch(epoll_, group_.peer(peer).control.get(), EPOLLIN | EPOLLET, control); !done) return done;
        for (int lane = lane_count - 1; lane >= 0; --lane) {
            for (int stripe = 0; stripe < group_.stripes(); ++stripe) {
                const auto& lanes = group_.peer(peer).lanes[static_cast<std::size_t>(lane)];
                Stream stream;
                stream.connection = &lanes[static_cast<std::size_t>(stripe)];
                stream.peer = peer;
                stream.lane = lane;
                stream.carries_header = lane == 0 && stripe == 0;
                stream.same_host = is_same_host(stream.connection->socket());
                const auto events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
                if (auto done = watch(epoll_, stream.connection->get(), events, streams_.size()); !done) return done;
                streams_.push_back(std::move(stream));
            }
        }
    }
    return {};
}

TcpLanes::Stream& TcpLanes::stream(int peer, int lane, std::size_t piece) {
    const auto stripes = static_cast<std::size_t>(group_.stripes());
    const auto row = rows_[static_cast<std::size_t>(peer)];
    MUSTER_CHECK(row != no_row, rank(), peer);
    return streams_[row + static_cast<std::size_t>(lane_count - 1 - lane) * stripes + piece % stripes];
}

// ---- for plans ----

void TcpLanes::send(int to, int lane, const Cut& cut, Opening opening) {
    to_send_[static_cast<std::size_t>(to)] += cut.size_bytes;
    const auto stripes = static_cast<std::size_t>(group_.stripes());
    for (std::size_t stripe = 0; stripe < stripes; ++stripe) {
        auto& out = stream(to, lane, stripe).out;
        out.begin(cut, stripe, stripes);
        if (opening != Opening::by_plan) out.open_all();
    }
}

void TcpLanes::receive(int from, int lane, const Cut& cut, Opening opening) {
    const auto stripes = static_cast<std::size_t>(group_.stripes());
    for (std::size_t stripe = 0; stripe < stripes; ++stripe) {
        Stream& one = stream(from, lane, stripe);
        one.in.begin(cut, stripe, stripes);
        if (opening == Opening::at_once) one.in.open_all();
        one.opens_when_agreed = opening == Opening::agreed;
    }
}

std::vector<double> TcpLanes::weights() const {
    std::vector<double> weights = weights_;
    if (!is_whole() && weights.empty()) weights.assign(static_cast<std::size_t>(size()), 1);
    for (int rank = 0; is_whole() && rank < size(); ++rank) weights.push_back(header(rank).weight);
    return weights;
}

std::byte* TcpLanes::scratch(std::size_t size_bytes) {
    if (scratch_.size() < size_bytes + cache_line_bytes) scratch_.resize(size_bytes + cache_line_bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(scratch_.data());
    return scratch_.data() + (cache_line_bytes - address % cache_line_bytes) % cache_line_bytes;
}

// ---- the loop ----

void TcpLanes::begin_operation(const CollectiveHeader& header) {
    headers_[static_cast<std::size_t>(rank())] = header;
    own_header_ = encode(header);
    headers_missing_ = static_cast<int>(group_.partners().size());
    to_send_.assign(static_cast<std::size_t>(size()), 0);
    for (auto& one : streams_) {
        one.in.begin({}, 0, 1);
        one.out.begin({}, 0, 1);
        one.opens_when_agreed = false;
        one.header_sent = one.header_received = one.carries_header ? 0 : sizeof(HeaderBytes);
    }
}

/// For the largest of what goes to any rank.
void TcpLanes::fit_send_buffers() {
    const auto bytes = *std::max_element(to_send_.begin(), to_send_.end());
    const int wanted = bytes >= stream_bytes_min ? same_host_stream_buffer_bytes : same_host_send_buffer_bytes;
    if (wanted == send_buffer_bytes_ || bytes <= same_host_stream_buffer_bytes) return;
    send_buffer_bytes_ = wanted;
    for (const auto& one : streams_)
        if (one.same_host) set_send_buffer(one.connection->get(), wanted);
}

Result<void> TcpLanes::carry(CollectivePlan& plan, CollectiveHeader header, const RunTerms& terms) {
    header.number = ++operations_;
    // Whoever comes too late would wait for ranks that have given up, and they for it: it keeps nobody waiting.
    if (!is_whole() && group_.gave_up(operations_)) return group_.failure_soon();
    begin_operation(header);
    plan.begin(*this);
    fit_send_buffers();
    for (;;) {
        bool moved = false;
        bool pending = false;
        for (auto& one : streams_) {
            const auto received = MUSTER_TRY(receive_some(one, plan));
            const auto sent = MUSTER_TRY(send_some(one));
            moved = moved || received || sent;
            pending = pending || !one.done();
        }
        if (!pending) break;
        if (!moved) {
            if (auto waited = wait(terms); !waited) return waited;
        } else if (auto in_time = check_deadline(terms); !in_time) {
            return in_time;
        }
    }
    if (auto whole = look_back(); !whole) return whole;
    plan.finished(*this);
    return {};
}

/// The header and what follows it come in one call.
Result<bool> TcpLanes::receive_some(Stream& stream, CollectivePlan& plan) {
    if (!stream.readable) return false;
    const std::size_t header_missing = sizeof(HeaderBytes) - stream.header_received;
    const auto data = stream.in.next();
    if (header_missing + data.size() == 0) return false;
    const std::array<iovec, 2> parts{
        {{stream.header_bytes.data() + stream.header_received, header_missing}, {data.data(), data.size()}}};
    const auto got = stream.connection->receive(parts);
    if (got < 0 && errno == EINTR) return true;
    if (got < 0 && errno == EAGAIN) {
        stream.readable = false;
        return false;
    }
    if (got <= 0) return lost(stream, got < 0 ? errno : 0);
    auto left = static_cast<std::size_t>(got);
    if (left < header_missing + data.size()) stream.readable = stream.ended;
    if (header_missing > 0) {
        const auto header = std::min(left, header_missing);
        stream.header_received += header;
        left -= header;
        if (header == header_missing) {
            if (auto agreed = header_arrived(stream, plan); !agreed) return agreed.error();
        }
    }
    const auto piece = stream.in.piece();
    if (left > 0 && stream.in.advance(left)) plan.received(*this, stream.peer, stream.lane, piece);
    return true;
}

Result<bool> TcpLanes::send_some(Stream& stream) {
    if (!stream.writable) return false;
    const std::size_t header_left = sizeof(HeaderBytes) - stream.header_sent;
    const auto data = stream.out.next();
    if (header_left + data.size() == 0) return false;
    const std::array<iovec, 2> parts{
        {{own_header_.data() + stream.header_sent, header_left}, {data.data(), data.size()}}};
    const auto sent = stream.connection->send(parts);
    if (sent < 0 && errno == EINTR) return true;
    if (sent < 0 && errno == EAGAIN) {
        stream.writable = false;
        return false;
    }
    if (sent < 0) return lost(stream, errno);
    auto left = static_cast<std::size_t>(sent);
    if (left < header_left + data.size()) stream.writable = false;
    const auto header = std::min(left, header_left);
    stream.header_sent += header;
    left -= header;
    if (left > 0) stream.out.advance(left);
    return true;
}

Error TcpLanes::refuse(int rank, std::string_view what) {
    return group_.fail(Errc::bad_frame, cat(group_.who(rank), " sent ", what, " in ", doing(),
                                            ": use the same version of muster on all nodes"));
}

Result<void> TcpLanes::header_arrived(Stream& stream, CollectivePlan& plan) {
    auto& theirs = headers_[static_cast<std::size_t>(stream.peer)];
    if (!decode(stream.header_bytes, theirs)) {
        return refuse(stream.peer, "an invalid header");
    }
    if (!agree(header(rank()), theirs)) {
        const auto words = [this](int one) { return cat(group_.who(one), " runs ", describe(header(one))); };
        return group_.fail(Errc::invalid_argument,
                           cat("ranks differ in operation ", operations_, " of communicator ", group_.id(), ": ",
                               words(std::min(rank(), stream.peer)), ", ", words(std::max(rank(), stream.peer))));
    }
    if (--headers_missing_ > 0) return {};
    for (auto& one : streams_) {
        if (one.opens_when_agreed) one.in.open_all();
    }
    plan.agreed(*this);
    return {};
}

}  // namespace muster::runtime
