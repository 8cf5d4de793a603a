// The connections that carry collectives, and the loop that moves their bytes.
//
// An operation is a CollectivePlan: it defines which memory goes to and comes from which rank on which lane, and is
// called when pieces have arrived. Each rank sends its header to all its partners first, in a small group all others.
// Nothing is received into the plan's memory before the headers of all partners have arrived and agree, unless the plan
// allows it. Partners of partners are all ranks: if two ranks differ, so do two partners somewhere between.
//
// The loop never waits while a connection can move. Readiness is derived from epoll's edges: a connection counts as
// ready until the kernel reports otherwise, so a message that has already arrived costs no additional call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/tcp/collective_header.h"
#include "worker_runtime/tcp/tcp_group.h"
#include "worker_runtime/tcp/tcp_pieces.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

class TcpLanes;

/// One collective, as its rank sees it. Lives as long as TcpLanes::carry().
class CollectivePlan {
  public:
    virtual ~CollectivePlan() = default;

    /// Calls lanes.send() and lanes.receive().
    virtual void begin(TcpLanes& lanes) = 0;
    /// Every partner does the same operation; what may be received at all is open from now on.
    virtual void agreed(TcpLanes& /*lanes*/) {}
    /// `piece` of what `from` sends on `lane` is here.
    virtual void received(TcpLanes& /*lanes*/, int /*from*/, int /*lane*/, std::size_t /*piece*/) {}
    /// Everything has been sent and received.
    virtual void finished(TcpLanes& /*lanes*/) {}
};

class TcpLanes {
  public:
    /// `group` outlives this.
    static Result<std::unique_ptr<TcpLanes>> over(TcpGroup& group);

    /// Runs `plan` to its end; `header` is this rank's, its number filled in here. One at a time.
    Result<void> carry(CollectivePlan& plan, CollectiveHeader header, const RunTerms& terms);

    // ---- for plans ----

    [[nodiscard]] int rank() const { return group_.rank(); }
    [[nodiscard]] int size() const { return group_.size(); }
    /// Are all ranks partners?
    [[nodiscard]] bool is_whole() const { return group_.is_whole(); }
    /// After agreed(): what `rank`, this one or a partner, said.
    [[nodiscard]] const CollectiveHeader& header(int rank) const { return headers_[static_cast<std::size_t>(rank)]; }
    /// After agreed(): those of all ranks in an average or a premul_sum.
    [[nodiscard]] std::vector<double> weights() const;
    /// Where not all ranks are partners: what weights() is from now on. Empty: all 1.
    void know_weights(std::vector<double> weights) { weights_ = std::move(weights); }

    /// When a queue's pieces may move.
    enum class Opening {
        at_once,  ///< Without waiting for the headers: for sends, and for memory that is not the caller's.
        agreed,   ///< After all headers agree.
        by_plan,  ///< When the plan calls open().
    };
    void send(int to, int lane, const Cut& cut, Opening opening = Opening::at_once);
    void receive(int from, int lane, const Cut& cut, Opening opening = Opening::agreed);
    /// Opens one more piece: number `piece`, in order for each connection.
    void open_send(int to, int lane, std::size_t piece) { stream(to, lane, piece).out.open_one(); }
    void open_receive(int from, int lane, std::size_t piece) { stream(from, lane, piece).in.open_one(); }

    /// "rank 3 (pid 4711 on gpu07)".
    [[nodiscard]] std::string who(int rank) const { return group_.who(rank); }

    /// Ends the group because of what `rank` has sent.
    Error refuse(int rank, std::string_view what);

    /// Memory of this size until the operation ends, aligned to a cache line; its content is undefined. Once an
    /// operation. It is kept for the next one and never shrinks: 44 MiB in a group of 1,024 ranks that has exchanged
    /// much.
    std::byte* scratch(std::size_t size_bytes);

  private:
    /// What an epoll event speaks of: a stream by its index, a control connection by its rank, or the group's end.
    static constexpr std::uint64_t control_mark = std::uint64_t{1} << 32;
    static constexpr std::uint64_t wake_mark = std::uint64_t{1} << 33;

    struct Stream {
        const TcpStream* connection = nullptr;
        int peer = -1;
        int lane = 0;
        bool carries_header = false;
        bool opens_when_agreed = false;  ///< True if `in` opens after all headers agree.
        bool same_host = false;
        // What the kernel has said last.
        bool readable = true;
        bool writable = true;
        bool ended = false;  ///< The peer has closed. Data that it sent before is still readable.
        PieceQueue in;
        PieceQueue out;
        std::size_t header_sent = 0;
        std::size_t header_received = 0;
        HeaderBytes header_bytes{};

        [[nodiscard]] bool done() const {
            return in.finished() && out.finished() && header_sent == sizeof(HeaderBytes) &&
                   header_received == sizeof(HeaderBytes);
        }
    };

    explicit TcpLanes(TcpGroup& group) : group_(group) {}
    Result<void> register_streams();
    Stream& stream(int peer, int lane, std::size_t piece);
    void begin_operation(const CollectiveHeader& header);
    void fit_send_buffers();
    Result<bool> receive_some(Stream& stream, CollectivePlan& plan);
    Result<bool> send_some(Stream& stream);
    Result<void> header_arrived(Stream& stream, CollectivePlan& plan);
    Result<void> wait(const RunTerms& terms);
    Result<void> look_back();
    Result<void> note(std::uint64_t what, std::uint32_t events);
    Error lost(const Stream& stream, int failure);
    Result<void> check_deadline(const RunTerms& terms);
    [[nodiscard]] std::vector<int> ranks_that(const auto& owes) const;
    [[nodiscard]] std::vector<int> awaited() const;
    [[nodiscard]] std::string doing() const;

    TcpGroup& group_;
    FileDescriptor epoll_;
    /// Starts with the next partner and wraps around; for each, the answers' lane first.
    std::vector<Stream> streams_;
    std::vector<std::size_t> rows_;  ///< Indexed by rank: where the streams of a partner begin.
    std::vector<CollectiveHeader> headers_;
    std::vector<double> weights_;
    HeaderBytes own_header_{};
    int headers_missing_ = 0;
    std::uint64_t operations_ = 0;
    std::vector<std::size_t> to_send_;  ///< Bytes, indexed by rank.
    int send_buffer_bytes_ = same_host_send_buffer_bytes;
    std::vector<std::byte> scratch_;
};

}  // namespace muster::runtime
