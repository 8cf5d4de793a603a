// The first node's end of the question for the key, with a stand-in for munge.
#include "launcher/node/key_giver.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::launcher;

namespace {

/// A program munge ahead of the others, while it lives.
class StandIn {
  public:
    explicit StandIn(const std::string& script) {
        const auto path = folder_ / "munge";
        std::ofstream(path) << "#!/bin/sh\ncd " << folder_.string() << "\n" << script << "\n";
        ::chmod(path.c_str(), 0755);
        ::setenv("PATH", cat(folder_.string(), ":", path_).c_str(), 1);
    }
    ~StandIn() { ::setenv("PATH", path_.c_str(), 1); }
    StandIn(const StandIn&) = delete;
    StandIn& operator=(const StandIn&) = delete;

    [[nodiscard]] std::size_t run_count() const {
        std::size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator(folder_.string()))
            count += entry.path().filename().string().starts_with("run.") ? 1 : 0;
        return count;
    }
    void release() const { std::ofstream(folder_ / "go"); }

  private:
    const std::string path_ = std::getenv("PATH");
    test::ScratchFolder folder_;
};

/// Counts its run, and waits for release().
constexpr const char* held_munge = ": >run.$$; until [ -e go ]; do sleep 0.1; done; cat >/dev/null; echo MUNGE:x:";

struct Asked {
    boost::asio::io_context loop;
    std::unique_ptr<KeyGiver> giver;
    std::map<std::string, std::pair<unsigned, std::string>> answers;

    explicit Asked(LaunchKey source = LaunchKey::munge) {
        LaunchConfig config;
        config.is_host = true;
        config.nodes_max = 8;
        config.job = "mine";
        config.endpoint = {.host = "192.0.2.1", .port = 29400};
        config.key = std::string(32, 'k');
        config.launch_key = source;
        giver = KeyGiver::make(loop, config,
                               {{"SLURM_JOB_ID", "1"},
                                {"SLURM_STEP_ID", "0"},
                                {"SLURM_PROCID", "0"},
                                {"SLURM_NODEID", "0"},
                                {"SLURM_STEP_NODELIST", "n[0-7]"}},
                               {.run = 60s, .question = 60s});
        REQUIRE(giver);
    }
    /// What it returns is to be set when the asker goes.
    std::shared_ptr<std::atomic<bool>> ask(const std::string& source, const std::string& name) {
        auto gone = std::make_shared<std::atomic<bool>>(false);
        giver->ask(source, std::string(64, 'a'), gone, [this, name](unsigned status, std::string body) {
            answers[name] = {status, std::move(body)};
        });
        return gone;
    }
    template <class Condition>
    void run_until(Condition is_true) {
        const auto end = std::chrono::steady_clock::now() + 60s;
        while (!is_true() && std::chrono::steady_clock::now() < end) {
            loop.restart();
            loop.run_one_for(10ms);
        }
        REQUIRE(is_true());
    }
};

}  // namespace

TEST_CASE("each source has one question at a time, and a network of IPv6 is one source") {
    const StandIn munge(held_munge);
    Asked asked;
    asked.ask("2001:db8:0:7::1", "first");
    asked.ask("2001:db8:0:7::2", "its neighbour");
    asked.ask("10.0.0.1", "another");
    CHECK(asked.answers["its neighbour"].first == 503);
    CHECK_THAT(asked.answers["its neighbour"].second, Catch::Contains("busy"));
    munge.release();
    asked.run_until([&] { return asked.answers.contains("first") && asked.answers.contains("another"); });
    CHECK(asked.answers["first"] == std::pair(200U, std::string("MUNGE:x:\n")));
    CHECK(asked.answers["another"].first == 200);
    asked.ask("2001:db8:0:7::2", "its neighbour, again");
    asked.run_until([&] { return asked.answers.contains("its neighbour, again"); });
    CHECK(asked.answers["its neighbour, again"].first == 200);
}

TEST_CASE("four munge run at one time, started one after the other") {
    const StandIn munge(held_munge);
    Asked asked;
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < 6; ++i) asked.ask(cat("10.0.0.", i), cat(i));
    asked.run_until([&] { return munge.run_count() == 4; });
    CHECK(std::chrono::steady_clock::now() - begun >= 12ms);
    asked.loop.run_for(200ms);
    CHECK(munge.run_count() == 4);
    CHECK(asked.answers.empty());
    munge.release();
    asked.run_until([&] { return asked.answers.size() == 6; });
    for (const auto& [name, answer] : asked.answers) CHECK(answer.first == 200);
}

TEST_CASE("no munge is started for an asker that has gone, who may ask again") {
    const StandIn munge(held_munge);
    Asked asked;
    for (int i = 0; i < 4; ++i) asked.ask(cat("10.0.0.", i), cat(i));
    asked.run_until([&] { return munge.run_count() == 4; });
    *asked.ask("10.0.1.1", "gone") = true;
    *asked.ask("10.0.1.2", "gone, too") = true;
    asked.ask("10.0.1.1", "again");
    munge.release();
    asked.run_until([&] { return asked.answers.size() == 5; });
    CHECK(asked.answers["again"].first == 200);
    CHECK(munge.run_count() == 5);
}

TEST_CASE("a munge that fails is answered by 503, and says where else the key may be") {
    const StandIn munge("echo MUNGE-less; echo munge: Error: no socket >&2; exit 1");
    for (const auto source : {LaunchKey::munge, LaunchKey::home, LaunchKey::home_alone}) {
        Asked asked(source);
        asked.ask("10.0.0.1", "one");
        asked.run_until([&] { return asked.answers.contains("one"); });
        const auto& [status, body] = asked.answers["one"];
        CHECK(status == 503);
        CHECK(body.starts_with(home_key_text) == (source != LaunchKey::munge));
        CHECK((body.find("no socket") != std::string::npos) == (source != LaunchKey::home_alone));
    }
}
