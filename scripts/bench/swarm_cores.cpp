// N agents of one job by the real client core (rendezvous/client/core), each with connections of its own, in this one
// process. They heartbeat at the pace that the daemon tells, and look for it when it is gone. Their questions to each
// other take no network: the answer comes 0.2 ms later.
//
//   swarm_cores PID SECONDS LEASE N GPUS PORT [PORT ...]    PID is that of the daemon that leads; LEASE in seconds
//
// With GPUS above 0 each agent says every ten seconds how busy so many GPUs are, another figure each minute.
//
// Prints a line of JSON for each phase:
//   steady     the daemon's share of a core and its memory, for so many seconds from the moment that all are assigned
//   returned   whoever started this program has ended the daemon after that line, and sees to the next one: the time
//              from the first connection that broke until all agents have had an answer on a new one, and then how many
//              agents were fenced or told that the round had ended
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "rendezvous/client/core/client_core.h"
#include "scripts/bench/swarm.h"

namespace {

using namespace muster;
using namespace muster::bench;
using namespace muster::rendezvous;

constexpr auto phase_limit = 120s;
constexpr Duration seen_pause = 10s;         // agent/evidence/hang_watcher.cpp
constexpr std::uint32_t starting_max = 200;  // connections at once, within the listener's backlog

class Cores {
  public:
    Cores(std::vector<std::uint16_t> ports, std::uint32_t count, Duration lease, std::uint32_t gpus)
        : ports_(std::move(ports)),
          lease_(lease),
          gpus_(gpus),
          epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)),
          agents_(count),
          by_rank_(count) {}

    void start_all() {
        for (std::uint32_t i = 0; i < agents_.size(); ++i) {
            start(i);
            run_until([&] { return i + 1 < opened_ + starting_max; });
        }
        run_until([&] { return told_ == agents_.size(); });
    }
    void run_for(Duration length) {
        const auto begin = Clock::now();
        std::int64_t next = 0;  // the agents take turns
        run_until([&] {
            const auto count = static_cast<std::int64_t>(agents_.size());
            for (; gpus_ > 0 && begin + next * seen_pause / count <= Clock::now(); ++next)
                say_gpus(static_cast<std::uint32_t>(next % count), static_cast<std::uint32_t>(next / count));
            return Clock::now() >= begin + length;
        });
    }
    /// In ms, from the first connection that breaks.
    double wait_for_return() {
        for (auto& agent : agents_) agent.is_back = agent.was_lost = false;
        back_ = 0;
        broke_at_ = {};
        run_until([&] { return back_ == agents_.size(); });
        return milliseconds(Clock::now() - broke_at_);
    }
    [[nodiscard]] std::uint32_t fenced() const { return fenced_; }
    [[nodiscard]] std::uint32_t ended() const { return ended_; }

  private:
    struct Question {
        Clock::time_point due;
        std::uint32_t agent = 0;
        QueryPeer query;
    };
    struct Link {
        std::uint32_t agent = 0;
        bool is_open = false;
        native::FrameReader reader{native::Sender::daemon};
    };
    struct Agent {
        std::unique_ptr<ClientCore> core;
        int fd = -1;       // that counts
        int next_fd = -1;  // being connected
        std::vector<int> older;
        std::string out;
        Instant due = no_deadline;
        bool was_lost = false;
        bool is_back = true;
    };

    void start(std::uint32_t index) {
        ClientConfig config;
        config.endpoint = {"127.0.0.1", ports_.front()};
        for (std::size_t i = 1; i < ports_.size(); ++i) config.others.push_back({"127.0.0.1", ports_[i]});
        config.job = "swarm";
        config.lease = lease_;
        config.node = {.host = "node" + std::to_string(index), .pid = 1, .incarnation = index + 1};
        auto& agent = agents_[index];
        agent.core = std::make_unique<ClientCore>(config);
        const auto count = static_cast<std::uint32_t>(agents_.size());
        native::Join join;
        join.terms = {.nodes_min = count, .nodes_max = count, .restarts_max = 1};
        join.terms.lease_ms = static_cast<std::uint32_t>(lease_ / 1ms);
        join.slots = 8;
        join.addresses = {"10.0." + std::to_string(index / 250) + "." + std::to_string(index % 250)};
        join.store_port = join.peer_port = 29500;
        carry_out(index, agent.core->join(join, Clock::now()));
    }

    void run_until(const std::function<bool()>& done) {
        const auto limit = Clock::now() + phase_limit;
        while (!done()) {
            if (Clock::now() > limit)
                fail("after 120 s " + std::to_string(told_) + " agents are assigned and " + std::to_string(back_) +
                     " are back");
            // What has come is read first: an agent of its own process would not find its daemon silent because others
            // had their turns before it.
            while (poll()) {
            }
            run_due();
        }
    }

    void say_gpus(std::uint32_t index, std::uint32_t turn) {
        constexpr std::uint32_t turns = 60s / seen_pause;
        native::WorkersSeen seen{.round = 0};
        for (std::uint32_t gpu = 0; gpu < gpus_; ++gpu)
            seen.gpus.push_back({gpu, (index + gpu + (turn + index % turns) / turns) % 101});
        carry_out(index, agents_[index].core->submit(std::move(seen), Clock::now()));
    }
    void run_due() {
        constexpr int turns_max = 256;
        const auto now = Clock::now();
        for (int i = 0; i < turns_max && !timers_.empty() && timers_.top().first <= now; ++i) {
            const auto [when, index] = timers_.top();
            timers_.pop();
            if (agents_[index].due == when) step(index, TimePassed{});
        }
        for (int i = 0; i < turns_max && !questions_.empty() && questions_.front().due <= now; ++i) {
            const auto [due, index, query] = std::move(questions_.front());
            questions_.pop_front();
            const auto peer = by_rank_[query.peer.group_rank];
            const auto answer = agents_[peer].core->answer(query.ask, Clock::now());
            step(peer, TimePassed{});
            step(index, PeerAnswered{.number = query.ask.number, .answer = answer});
        }
    }

    /// True: there may be more.
    bool poll() {
        std::array<epoll_event, 256> events;
        const bool is_due = !questions_.empty() || (!timers_.empty() && timers_.top().first <= Clock::now());
        const int ready = ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), is_due ? 0 : 1);
        for (int i = 0; i < ready; ++i) {
            const auto fd = events[static_cast<std::size_t>(i)].data.fd;
            const auto link = links_.find(fd);
            if (link == links_.end()) continue;
            if (link->second.is_open)
                read(fd, link->second);
            else
                connected(fd, link->second);
        }
        return ready == static_cast<int>(events.size());
    }

    void connected(int fd, Link& link) {
        int error = 0;
        socklen_t size = sizeof error;
        ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        auto& agent = agents_[link.agent];
        const auto index = link.agent;
        agent.next_fd = -1;
        if (error != 0) {
            close(fd);
            return step(index, ConnectionFailed{.tried = "127.0.0.1: connection refused"});
        }
        if (agent.fd >= 0) agent.older.push_back(agent.fd);
        agent.fd = fd;
        link.is_open = true;
        ++opened_;
        watch(fd, EPOLL_CTL_MOD, EPOLLIN);
        step(index, ConnectionOpened{.address = "127.0.0.1"});
    }

    void read(int fd, Link& link) {
        const auto index = link.agent;
        auto& agent = agents_[index];
        const auto size = ::recv(fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
        if (size < 0 && errno == EAGAIN) return;
        if (size <= 0) {
            const bool counts = agent.fd == fd;
            std::erase(agent.older, fd);
            close(fd);
            if (!counts) return;
            agent.fd = -1;
            agent.out.clear();
            agent.was_lost = true;
            if (broke_at_ == Clock::time_point{}) broke_at_ = Clock::now();
            return step(index, ConnectionClosed{.why = "reset"});
        }
        link.reader.append({buffer_.data(), static_cast<std::size_t>(size)});
        while (agent.fd == fd) {
            const auto message = link.reader.next();
            if (!message) fail("a message cannot be read: " + message.error().context);
            if (!*message) return;
            note(agent, **message);
            step(index, MessageReceived{**message});
        }
    }

    void note(Agent& agent, const native::Message& message) {
        if (std::holds_alternative<native::Peers>(message)) ++told_;
        if (const auto* end = std::get_if<native::RoundEnded>(&message)) {
            if (told_ < agents_.size()) fail("the round ended before all had heard of it: " + end->why);
            if (ended_++ == 0) std::fprintf(stderr, "swarm: the round ended: %s\n", end->why.c_str());
        }
        if (const auto* refused = std::get_if<native::Refused>(&message)) fail("refused: " + refused->why);
        if (!std::holds_alternative<native::Pong>(message) || !agent.was_lost || agent.is_back) return;
        agent.is_back = true;
        ++back_;
    }

    void step(std::uint32_t index, const ClientInput& input) {
        carry_out(index, agents_[index].core->step(input, Clock::now()));
    }

    void carry_out(std::uint32_t index, const std::vector<ClientOutput>& outputs) {
        for (const auto& output : outputs) std::visit([&](const auto& one) { carry_out(index, one); }, output);
        auto& agent = agents_[index];
        if (agent.fd >= 0 && !agent.out.empty()) {
            const auto size = ::send(agent.fd, agent.out.data(), agent.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            // Another error is that of a connection that has ended, which read() finds.
            const bool is_full = size < 0 && errno == EAGAIN;
            if (is_full || (size >= 0 && static_cast<std::size_t>(size) != agent.out.size()))
                fail("the daemon does not read: an agent's connection is full");
        }
        agent.out.clear();
        const auto due = agent.core->deadline();
        if (due != agent.due && due != no_deadline) timers_.emplace(due, index);
        agent.due = due;
    }
    void carry_out(std::uint32_t index, const Connect&) {
        carry_out(index, Abandon{});
        auto& agent = agents_[index];
        agent.next_fd = connect_to(agent.core->endpoint().port, SOCK_NONBLOCK);
        links_[agent.next_fd].agent = index;
        watch(agent.next_fd, EPOLL_CTL_ADD, EPOLLOUT);
    }
    void carry_out(std::uint32_t index, const Disconnect&) {
        carry_out(index, Abandon{});
        close(std::exchange(agents_[index].fd, -1));
    }
    void carry_out(std::uint32_t index, const Abandon&) { close(std::exchange(agents_[index].next_fd, -1)); }
    void carry_out(std::uint32_t index, const DropOlder&) {
        for (const int fd : std::exchange(agents_[index].older, {})) close(fd);
    }
    void carry_out(std::uint32_t index, const Send& send) { native::append_frame(agents_[index].out, send.message); }
    void carry_out(std::uint32_t index, const QueryPeer& query) {
        questions_.push_back({Clock::now() + 200us, index, query});
    }
    void carry_out(std::uint32_t index, const Deliver& deliver) {
        if (const auto* assigned = std::get_if<native::Assigned>(&deliver.message))
            by_rank_[assigned->group_rank] = index;
    }
    void carry_out(std::uint32_t, const Fenced&) { ++fenced_; }
    void carry_out(std::uint32_t, const RendezvousLost& lost) { fail("an agent gives up: " + lost.why); }
    void carry_out(std::uint32_t, const Progress&) {}

    void watch(int fd, int how, std::uint32_t events) const {
        epoll_event event{};
        event.events = events;
        event.data.fd = fd;
        if (::epoll_ctl(epoll_fd_, how, fd, &event) != 0) fail("epoll_ctl");
    }
    void close(int fd) {
        if (fd < 0) return;
        links_.erase(fd);
        ::close(fd);
    }

    using Timer = std::pair<Instant, std::uint32_t>;

    std::vector<std::uint16_t> ports_;
    Duration lease_;
    std::uint32_t gpus_;
    int epoll_fd_;
    std::vector<Agent> agents_;
    std::vector<std::uint32_t> by_rank_;
    std::map<int, Link> links_;  // by descriptor
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    std::deque<Question> questions_;  // all with the same delay
    std::vector<char> buffer_ = std::vector<char>(1 << 16);
    std::uint32_t opened_ = 0, told_ = 0, back_ = 0, fenced_ = 0, ended_ = 0;
    Clock::time_point broke_at_{};
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7) {
        std::fprintf(stderr, "usage: swarm_cores PID SECONDS LEASE N GPUS PORT [PORT ...]\n");
        return 2;
    }
    raise_open_files();
    const std::string daemon = argv[1];
    const auto length = Duration{1s} * std::atoi(argv[2]);
    const auto lease = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::atof(argv[3])));
    const auto count = static_cast<std::uint32_t>(std::atoi(argv[4]));
    std::vector<std::uint16_t> ports;
    for (int i = 6; i < argc; ++i) ports.push_back(static_cast<std::uint16_t>(std::atoi(argv[i])));
    Cores cores(ports, count, lease, static_cast<std::uint32_t>(std::atoi(argv[5])));
    cores.start_all();
    const auto before = cpu_of(daemon);
    const auto begun = Clock::now();
    cores.run_for(length);
    const auto took = std::chrono::duration<double>(Clock::now() - begun).count();
    std::printf("{\"agents\": %u, \"phase\": \"steady\", \"cpu_percent\": %.2f, \"memory_mib\": %.1f}\n", count,
                100 * (cpu_of(daemon) - before) / took, resident_bytes(daemon) / (1 << 20));
    std::fflush(stdout);
    const auto away_ms = cores.wait_for_return();
    cores.run_for(2 * lease);  // whoever is to be fenced is fenced by then
    std::printf("{\"agents\": %u, \"phase\": \"returned\", \"ms\": %.0f, \"fenced\": %u, \"ended\": %u}\n", count,
                away_ms, cores.fenced(), cores.ended());
    return 0;
}
