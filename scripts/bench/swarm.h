// Agents of one job, each a real connection of this process, for benchmarks of the daemon. Of what they hear only
// headers and assignments are looked at: this one process stands for thousands of hosts, each of which would decode the
// list of all peers on its own. An assignment that gives a rank twice, or leaves one out, ends the program; so does
// everything else that goes wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/tls/psk_channel.h"
#include "rendezvous/wire/native/codec.h"
#include "scripts/bench/loopback.h"

namespace muster::bench {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time);

/// The frames of some messages, one after the other.
std::string frames_of(const auto&... messages) {
    std::string bytes;
    (native::append_frame(bytes, messages), ...);
    return bytes;
}

class Swarm {
  public:
    struct Tally {
        std::uint64_t messages = 0;
        std::uint64_t bytes = 0;  // without those of TCP
        void add(std::size_t size) {
            ++messages;
            bytes += size;
        }
    };

    /// With a secret (MUSTER_KEY of the daemon) they speak TLS.
    Swarm(std::uint16_t port, std::uint32_t count, const std::string& secret = {});
    ~Swarm();
    Swarm& operator=(Swarm&&) = delete;

    void connect();
    /// The first words, of TLS where they speak it.
    void join();
    void lose_one();
    void fail_one();
    /// Answers the daemon until every agent knows its place and its peers in the round; the time since `from` until the
    /// last assignment, in ms.
    double settle(Round round, Clock::time_point from);

    void say(std::uint32_t index, const native::Message& message);
    /// Takes what comes until then, or until nothing has come for a millisecond.
    void receive_until(Clock::time_point end);
    [[nodiscard]] std::uint32_t count() const { return count_; }
    [[nodiscard]] const Tally& said() const { return said_; }
    [[nodiscard]] const Tally& heard() const { return heard_; }
    [[nodiscard]] const Tally& job_seen() const { return job_seen_; }  // of what was heard

  private:
    struct Agent {
        int fd = -1;
        std::unique_ptr<rendezvous::PskChannel> tls;
        bool is_shaking = false;
        std::string frame;     // header, and of an assignment the payload too
        std::size_t skip = 0;  // bytes of another payload still to come
    };

    native::Hello hello(std::uint32_t index) const;
    native::Join join_messages(std::uint32_t index, Round last_round) const;
    /// False: nothing came.
    bool receive_for(int milliseconds);
    void write(Agent& agent, std::string_view bytes);
    void decrypt(std::uint32_t index, std::string_view wire);
    void begin_tls(Agent& agent) const;
    std::string first_words(std::uint32_t index) const;
    void take(std::uint32_t index, std::string_view bytes);
    void hear(std::uint32_t index, char type);
    void note_place(const std::string& frame);

    std::uint16_t port_;
    std::uint32_t count_;  // at the beginning
    std::string job_ = "swarm" + std::to_string(count_) + "-" + std::to_string(::getpid());
    std::shared_ptr<const rendezvous::PskContext> tls_;
    int epoll_fd_;
    std::vector<Agent> agents_;
    std::vector<char> buffer_ = std::vector<char>(1 << 20);
    std::vector<char> plain_ = std::vector<char>(1 << 15);
    std::uint32_t alive_;
    Round round_ = no_round;   // that is awaited
    std::vector<char> ranks_;  // of it; 1: given
    std::uint32_t assigned_ = 0;
    std::uint32_t told_ = 0;
    Tally said_, heard_, job_seen_;
};

}  // namespace muster::bench
