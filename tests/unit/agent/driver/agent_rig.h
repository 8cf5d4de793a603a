// An agent's driver against a scripted link, host and store, which write down what reaches them.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "agent/driver/agent.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/run_until.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

namespace muster::agent::test {

namespace fs = std::filesystem;

using Diary = std::vector<std::string>;

struct FakeLink : rendezvous::RendezvousLink {
    explicit FakeLink(Diary& book) : diary(book) {}
    void submit(native::Message message) override {
        std::visit([this](auto& one) { note(one); }, message);
    }
    void note(const native::Join& join) { diary.push_back(cat("join after ", join.last_round)); }
    void note(native::WorkersFailed& failed) {
        diary.push_back(cat("failed ", show(failed.failures)));
        failures = std::move(failed.failures);
    }
    void note(const native::WorkersSucceeded&) { diary.push_back("succeeded"); }
    void note(const native::RoundReport& report) { diary.push_back(cat("report of round ", report.round)); }
    void note(const native::Leave&) { diary.push_back("leave"); }
    void note(const native::EndAcknowledged&) { diary.push_back("acknowledge"); }
    void note(const native::Command& command) { diary.push_back(cat("command: ", command.why)); }
    void note(const native::FaultAnswer& answer) {
        diary.push_back(cat("fault ", answer.number, answer.done ? " done: " : " not done: ", answer.text));
    }
    void note(const native::WorkersSeen&) {}
    template <class Other>
    void note(const Other&) {
        diary.push_back("a message that no agent submits");
    }
    void cut_off(Duration length) override { diary.push_back(cat("cut off for ", muster::describe(length))); }
    void close(Duration, std::function<void()> closed) override {
        diary.push_back("close link");
        closed();
    }

    [[nodiscard]] Instant heard_until() const override { return heard; }

    Diary& diary;
    Instant heard = Instant::max();
    std::vector<Failure> failures;
};

struct FakeHost : ProcessHost {
    explicit FakeHost(Diary& book) : diary(book) {}
    void start(std::vector<WorkerCommand> list) override {
        diary.push_back(cat("start ", list.size()));
        commands = std::move(list);
    }
    void signal_leaders(int signal) override { diary.push_back(cat("signal ", signal_name(signal))); }
    void follow_up(int, AwaitedTimeouts) override {}
    void keep(const std::vector<std::uint32_t>& local_ranks) override {
        std::string list;
        for (const auto local_rank : local_ranks) list += cat(" ", local_rank);
        diary.push_back(cat("keep", list.empty() ? " none" : list));
    }
    void remove_after_death(std::string) override {}
    void signal_group(std::uint32_t local_rank, int signal) override {
        diary.push_back(cat("signal group ", local_rank, " ", signal_name(signal)));
    }
    void kill_tree() override { diary.push_back("kill tree"); }
    void kill_guardian() override { diary.push_back("kill guardian"); }
    void feed() override { ++feed_count; }
    void expect(const std::vector<WorkerCommand>& list, std::function<void()>) override {
        diary.push_back(cat("expect ", list.size()));
    }

    Diary& diary;
    std::vector<WorkerCommand> commands;
    int feed_count = 0;
};

struct FakeStores : RoundStoreHost {
    explicit FakeStores(Diary& book) : diary(book) {}
    Result<RoundPorts> open() override {
        diary.push_back("open store");
        return RoundPorts{4000, 4000};
    }
    void serve(const native::Assigned& assigned) override { diary.push_back(cat("serve round ", assigned.round)); }
    Result<std::optional<Endpoint>> relay(const Endpoint& store) override {
        if (relay_port == 0) return std::optional<Endpoint>();
        diary.push_back(cat("relay to ", describe(store)));
        if (relay_port == 1) return Error{Errc::io, "no relay"};
        return std::optional<Endpoint>(Endpoint{"127.0.0.1", relay_port});
    }
    void close() override { diary.push_back("close store"); }
    Diary& diary;
    std::uint16_t relay_port = 0;
};

/// An agent with two workers and a temporary log directory.
class Rig {
  public:
    Rig() {
        std::string name = fs::temp_directory_path() / "muster_agent_test_XXXXXX";
        directory = ::mkdtemp(name.data());
        config.supervisor = Story::config();
        config.workers.worker_count = 2;
        config.workers.argv = {"/bin/true", "$local_rank"};
        config.workers.environment = {{"TMPDIR", directory.string()}};
        config.logs.base = (directory / "logs").string();
        config.lease = 50ms;
    }
    ~Rig() {
        agent.reset();
        std::error_code ignored;
        fs::remove_all(directory, ignored);
    }
    void start() {
        agent = std::make_unique<Agent>(loop, config, link, host, stores);
        agent->on_end = [this](Ending e) { ending = std::move(e); };
        agent->start();
    }
    void start_workers(Round round = 0) {
        native::Assigned assigned;
        assigned.round = round;
        assigned.store_addresses = {"10.0.0.1"};
        assigned.store_port = 4000;
        link.on_message(assigned);
    }
    /// Of two nodes this one is not the store's. The store, which only listens, ends with what is returned.
    boost::asio::ip::tcp::acceptor start_away_from_store() {
        boost::asio::ip::tcp::acceptor store(loop, {boost::asio::ip::make_address("127.0.0.9"), 0});
        native::Assigned assigned;
        assigned.round = 0;
        assigned.group_rank = 1;
        assigned.group_world_size = 2;
        assigned.store_addresses = {"127.0.0.9"};
        assigned.store_port = store.local_endpoint().port();
        link.on_message(assigned);
        return store;
    }
    void end_worker(std::uint32_t local_rank, WorkerEnd end, std::string stderr_tail = "") {
        host.on_event(WorkerEnded{.local_rank = local_rank,
                                  .pid = 100,
                                  .end = std::move(end),
                                  .at = std::chrono::steady_clock::now(),
                                  .stderr_tail = std::move(stderr_tail)});
    }
    bool run_until(const std::function<bool()>& done) { return muster::test::run_until(loop, done); }
    /// What was done since the last call.
    std::string news() {
        std::string out;
        for (; told < diary.size(); ++told) out += cat(out.empty() ? "" : "; ", diary[told]);
        return out;
    }
    std::string variable(std::size_t worker, const std::string& name) const {
        for (const auto& entry : host.commands.at(worker).environment)
            if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
        return "(unset)";
    }

    fs::path directory;
    AgentConfig config;
    boost::asio::io_context loop;
    Diary diary;
    std::size_t told = 0;
    FakeLink link{diary};
    FakeHost host{diary};
    FakeStores stores{diary};
    std::unique_ptr<Agent> agent;
    std::optional<Ending> ending;
};

}  // namespace muster::agent::test
