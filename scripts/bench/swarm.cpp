#include "scripts/bench/swarm.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "rendezvous/secret/control_key.h"

namespace muster::bench {

namespace {

constexpr auto give_up_after = std::chrono::seconds(60);

char type_of(const native::Message& message) {
    return frames_of(message)[1];
}

const char assigned_type = type_of(native::Assigned{});
const char peers_type = type_of(native::Peers{});
const char ended_type = type_of(native::RoundEnded{});
const char refused_type = type_of(native::Refused{});
const char job_seen_type = type_of(native::JobSeen{});

}  // namespace

double milliseconds(Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

Swarm::Swarm(std::uint16_t port, std::uint32_t count, const std::string& secret)
    : port_(port), count_(count), epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)), agents_(count), alive_(count) {
    if (secret.empty()) return;
    auto control = rendezvous::control_key(rendezvous::job_key({.text = secret, .origin = {}}, job_), job_);
    tls_ = rendezvous::PskContext::client(std::move(control.identity), std::move(control.key));
}

void Swarm::begin_tls(Agent& agent) const {
    if (!tls_) return;
    agent.tls = std::make_unique<rendezvous::PskChannel>(tls_);
    agent.is_shaking = true;
}

void Swarm::write(Agent& agent, std::string_view bytes) {
    if (agent.tls) {
        agent.tls->write(bytes);
        bytes = agent.tls->output();
    }
    if (::send(agent.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) fail("send");
    if (agent.tls) agent.tls->drop_output(bytes.size());
}

/// Hello and Join go out with the handshake's last words.
void Swarm::decrypt(std::uint32_t index, std::string_view wire) {
    Agent& agent = agents_[index];
    while (const auto size = agent.tls->read(wire, plain_)) take(index, {plain_.data(), size});
    if (agent.tls->state() == rendezvous::PskChannel::State::failed) fail("TLS: " + agent.tls->why());
    if (agent.is_shaking && agent.tls->state() == rendezvous::PskChannel::State::open) {
        agent.is_shaking = false;
        write(agent, first_words(index));
    }
}

Swarm::~Swarm() {
    for (const Agent& agent : agents_)
        if (agent.fd >= 0) ::close(agent.fd);
    ::close(epoll_fd_);
}

native::Hello Swarm::hello(std::uint32_t index) const {
    native::Hello hello;
    hello.job = job_;
    hello.node = {.host = "node" + std::to_string(index), .pid = 1, .incarnation = index + 1};
    hello.versions = {{.component = "muster", .version = "bench"}};
    return hello;
}

native::Join Swarm::join_messages(std::uint32_t index, Round last_round) const {
    native::Join join;
    // Longer than any of this takes, on a busy host too: nobody need ping.
    join.terms = {.nodes_min = count_ - 1, .nodes_max = count_, .restarts_max = 1, .lease_ms = 60'000};
    join.terms.lost_timeout_ms = 2 * join.terms.lease_ms;
    join.last_round = last_round;
    join.slots = 8;
    join.addresses = {"10.0." + std::to_string(index / 250) + "." + std::to_string(index % 250)};
    join.store_port = 29500;
    join.peer_port = 29500;
    return join;
}

void Swarm::connect() {
    for (std::uint32_t i = 0; i < count_; ++i) {
        agents_[i].fd = connect_to(port_);
        begin_tls(agents_[i]);
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u32 = i;
        if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, agents_[i].fd, &event) != 0) fail("epoll_ctl");
    }
}

std::string Swarm::first_words(std::uint32_t index) const {
    return frames_of(hello(index), join_messages(index, no_round));
}

void Swarm::join() {
    for (std::uint32_t i = 0; i < count_; ++i) write(agents_[i], tls_ ? std::string() : first_words(i));
}

void Swarm::lose_one() {
    const std::uint32_t index = count_ / 2;
    Agent& guardian = agents_[index];  // in the place of its agent
    ::close(guardian.fd);
    --alive_;
    guardian.fd = connect_to(port_);
    std::array<char, 512> answer{};
    begin_tls(guardian);
    while (guardian.tls && guardian.tls->state() == rendezvous::PskChannel::State::shaking) {
        write(guardian, {});
        const auto size = ::recv(guardian.fd, answer.data(), answer.size(), 0);
        if (size <= 0) fail("the daemon closed a guardian's connection");
        std::string_view wire(answer.data(), static_cast<std::size_t>(size));
        guardian.tls->read(wire, plain_);
    }
    write(guardian, frames_of(hello(index), native::AgentDied{"killed by signal 9"}));
    // Stays open, because the daemon does not serve a connection that its process closed before it was accepted. Not
    // awaited either: the other agents are processes of their own, which read while the daemon still tells the rest.
    ::shutdown(guardian.fd, SHUT_WR);
}

void Swarm::fail_one() {
    native::WorkersFailed failed{round_, {}};
    auto& failure = failed.failures.emplace_back();
    failure.host = "node0";
    failure.rank = 0;
    failure.end = Exited{1};
    write(agents_[0], frames_of(failed));
}

double Swarm::settle(Round round, Clock::time_point from) {
    round_ = round;
    ranks_.assign(alive_, 0);
    assigned_ = told_ = 0;
    double assigned_ms = 0;
    while (assigned_ < alive_ || told_ < alive_) {
        if (Clock::now() - from > give_up_after)
            fail("round " + std::to_string(round) + ": " + std::to_string(assigned_) + " were assigned in time");
        receive_for(1000);
        if (assigned_ == alive_ && assigned_ms == 0) assigned_ms = milliseconds(Clock::now() - from);
    }
    return assigned_ms;
}

bool Swarm::receive_for(int milliseconds) {
    std::array<epoll_event, 256> events;
    const int ready = ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), milliseconds);
    for (int i = 0; i < ready; ++i) {
        const auto index = events[static_cast<std::size_t>(i)].data.u32;
        const auto size = ::recv(agents_[index].fd, buffer_.data(), buffer_.size(), 0);
        if (size <= 0) fail("the daemon closed a connection");
        const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(size));
        if (agents_[index].tls)
            decrypt(index, bytes);
        else
            take(index, bytes);
    }
    return ready > 0;
}

void Swarm::receive_until(Clock::time_point end) {
    while (receive_for(1) && Clock::now() < end) {
    }
}

void Swarm::say(std::uint32_t index, const native::Message& message) {
    const auto bytes = frames_of(message);
    write(agents_[index], bytes);
    said_.add(bytes.size());
}

void Swarm::take(std::uint32_t index, std::string_view bytes) {
    Agent& agent = agents_[index];
    const auto move_to_frame = [&](std::size_t size) {
        const auto missing = std::min(size - agent.frame.size(), bytes.size());
        agent.frame += bytes.substr(0, missing);
        bytes.remove_prefix(missing);
        return agent.frame.size() == size;
    };
    while (!bytes.empty()) {
        const std::size_t skipped = std::min(agent.skip, bytes.size());
        agent.skip -= skipped;
        bytes.remove_prefix(skipped);
        if (agent.frame.size() < native::frame_header_bytes && !move_to_frame(native::frame_header_bytes)) return;
        std::uint32_t length = 0;
        std::memcpy(&length, agent.frame.data() + 2, sizeof length);
        const char type = agent.frame[1];
        if (type == assigned_type) {
            if (!move_to_frame(native::frame_header_bytes + length)) return;
            note_place(agent.frame);
        } else {
            agent.skip = length;
            heard_.add(native::frame_header_bytes + length);
            if (type == job_seen_type) job_seen_.add(native::frame_header_bytes + length);
            hear(index, type);
        }
        agent.frame.clear();
    }
}

void Swarm::hear(std::uint32_t index, char type) {
    if (type == refused_type) fail("a join was refused");
    if (type == peers_type) ++told_;
    if (type != ended_type) return;
    write(agents_[index], frames_of(native::RoundReport{.round = round_ - 1, .failures = {}, .stopped_count = 8},
                                    join_messages(index, round_ - 1)));
}

void Swarm::note_place(const std::string& frame) {
    native::FrameReader reader(native::Sender::daemon);
    reader.append(frame);
    const auto message = reader.next();
    if (!message || !*message) fail("an assignment cannot be read");
    const auto& told = std::get<native::Assigned>(**message);
    if (told.round != round_) fail("an assignment of round " + std::to_string(told.round));
    if (told.group_world_size != alive_ || told.group_rank >= alive_ || ranks_[told.group_rank] != 0)
        fail("group rank " + std::to_string(told.group_rank) + " of " + std::to_string(told.group_world_size));
    ranks_[told.group_rank] = 1;
    ++assigned_;
}

}  // namespace muster::bench
