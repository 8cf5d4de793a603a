// The agent's end of the channel to one worker (rendezvous/wire/local).
//
// A Unix seqpacket listener at an abstract address, for processes of the same user only. It leaves no file on disk,
// also after a crash. The channel is optional: a worker without it runs as usual. A worker that misuses the channel
// loses the channel and keeps running.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/closing_ptr.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/section_times.h"
#include "rendezvous/base/sockets/datagram.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/local/messages.h"

namespace muster::agent {

/// What a worker has told about itself.
struct WorkerFacts {
    bool connected = false;  ///< True while the connection is open.
    std::string runtime;
    std::optional<std::int64_t> step;        ///< Of its last message Progress.
    std::optional<std::int64_t> first_step;  ///< Of the first one.
    Instant stepped_at;                      ///< When the last one came.
    std::string section;
    Duration section_limit{};  ///< Limit of the section. Zero: no limit.
    Instant section_since;
    SectionTimes sections{};  ///< Time in each, without the present one.
    /// With the present one.
    [[nodiscard]] SectionTimes sections_at(Instant now) const {
        auto all = sections;
        if (!section.empty()) section_time(all, section) += (now - section_since).count();
        return all;
    }
    std::uint64_t heartbeats = 0;
    std::int64_t snapshot_step = -1;  ///< Of the last snapshot that it gave. -1: none.
    std::int64_t copy_step = -1;      ///< Of the last copy of another rank's.
};

/// Memory that a worker gave, to be kept beyond its end.
struct MemoryHandover {
    FileDescriptor memory;
    std::uint64_t size_bytes = 0;
    std::int64_t step = -1;   ///< Step of a snapshot or a copy.
    std::int32_t rank = -1;   ///< Rank that a copy belongs to.
    std::string directory{};  ///< Checkpoint directory of a snapshot. Empty: none.
    bool earlier = false;     ///< True if it was handed over in an earlier round.
};

class AgentChannel : public std::enable_shared_from_this<AgentChannel> {
  public:
    /// Listens at once. An error (limit_exceeded, io) names the address. `snapshots`: what a worker in this place gave
    /// before; the new one is offered it, and it counts as this one's gift until that gives another. `copies`: what it
    /// gave of other ranks', offered too. Both are kept until the new worker has given two snapshots: only then do all
    /// ranks have the first of them, and nobody goes back to a round before.
    static Result<ClosingPtr<AgentChannel>> open(boost::asio::io_context& loop, std::uint32_t local_rank,
                                                 std::vector<MemoryHandover> snapshots = {},
                                                 std::vector<MemoryHandover> copies = {});
    ~AgentChannel();
    /// Closes everything, gifts included.
    void close();

    /// Given from now on to each connection that asks with token(), also to one beside the worker's: a worker's child
    /// may be the program that needs it. 32 bytes.
    void set_ranks_key(std::string key) { ranks_key_ = std::move(key); }
    /// `heard` gets the worker's messages CanKeep and Held, and a CanKeep{false} when the worker's connection ends. It
    /// is not called any more once the channel is closed.
    void on_keeping(std::function<void(const local::Message&)> heard) { on_keeping_ = std::move(heard); }
    /// For MUSTER_AGENT_TOKEN. A connection that does not begin with it is not heard, and gets nothing. It keeps away
    /// processes of the same user number in other containers, which see address() in /proc/net/unix, and connections
    /// by accident. A process that may read the worker's environment has it.
    [[nodiscard]] const std::string& token() const { return token_; }

    /// For MUSTER_AGENT_SOCKET: "@" stands for the zero byte of an abstract address.
    [[nodiscard]] const std::string& address() const { return address_; }

    /// Sends now, or drops the message when no worker is connected or its buffer is full: the channel never makes the
    /// agent wait for a worker. A worker that connects later still gets the last RoundEnded or Notice.
    void send(const local::Message& message);

    /// Hears now what a worker has said, connected or not. After a pause of the agent, other news may be read first.
    void catch_up();

    [[nodiscard]] const WorkerFacts& facts() const { return facts_; }
    /// The descriptor of the latest gift of this kind, owned by the channel; -1: none.
    [[nodiscard]] int gift(local::HandoverKind kind) const;
    /// The descriptor of the worker's step record, owned by the channel; -1: it counts no steps.
    [[nodiscard]] int step_record() const { return step_record_.get(); }
    /// Takes the snapshots away from the channel, those that were given last at the end: of each directory the newest
    /// two of this round, and while there are fewer, two at most of those before.
    std::vector<MemoryHandover> take_snapshots();
    /// Takes the copies of other ranks' snapshots.
    std::vector<MemoryHandover> take_copies() { return std::exchange(handovers_[local::HandoverKind::copy], {}); }

  private:
    /// A connection that has said nothing yet.
    struct Newcomer {
        explicit Newcomer(boost::asio::io_context& loop, FileDescriptor connected)
            : socket(loop, connected.release()), timer(loop) {}
        boost::asio::posix::stream_descriptor socket;
        boost::asio::steady_timer timer;
    };
    AgentChannel(boost::asio::io_context& loop, std::string address, FileDescriptor socket);
    void wait_for_worker();
    void receive(FileDescriptor socket);
    void dismiss(const std::shared_ptr<Newcomer>& newcomer);
    void hear(const std::shared_ptr<Newcomer>& newcomer);
    /// False: it has said nothing yet.
    bool answer(const std::shared_ptr<Newcomer>& newcomer);
    void seat(Newcomer& newcomer, const local::Hello& hello);
    /// False: it is not the token of this channel.
    bool is_known(const std::string& token);
    void give_key(int socket);

    void accept();
    /// Of our own user, if one waits. False with the reason in errno: none was taken.
    bool take_connection();
    void wait_for_message();
    void read();
    void read_some(int most);
    /// False when the worker broke the protocol.
    bool take(Datagram datagram);
    void note(const local::Message& message);
    void note_step(std::int64_t step);
    void note_section(const local::Section& section);
    void keep(const local::Give& give, FileDescriptor memory);
    void offer(local::HandoverKind kind);
    void deliver(const local::Message& message);
    void hang_up();
    /// What a worker that has ended had said before; its end may have been heard first.
    void read_the_rest();

    boost::asio::io_context& loop_;
    std::string address_;
    std::string ranks_key_;
    const std::string token_ = hexadecimal(random_bytes(16));
    WorkerFacts facts_;
    std::function<void(const local::Message&)> on_keeping_;
    std::map<local::HandoverKind, std::vector<MemoryHandover>> handovers_;  // the newest last
    FileDescriptor step_record_;
    std::optional<local::Message> warning_;  // RoundEnded or Notice: it holds for whoever connects later
    boost::asio::posix::stream_descriptor listener_;
    boost::asio::posix::stream_descriptor worker_;
    boost::asio::steady_timer accept_timer_;
    std::deque<std::shared_ptr<Newcomer>> newcomers_;
    bool refused_ = false;  // a wrong token was logged
    bool closed_ = false;
};

}  // namespace muster::agent
