// Somebody sits between agents and a daemon and delays, cuts, drops, changes, repeats and swaps what they say, replays
// it to others, and connects agents to connections of others. Two jobs, so two keys, and one daemon that knows both.
//
//   man_in_the_middle SEEDS [FIRST]     e.g. 100000; exit 1 and the seed where a promise is broken
//   man_in_the_middle --plant SEEDS     the same with a planted bug: a channel gives the bytes that it could not verify
//
// Of ten seeds one has nobody in the middle. What is tested is the channels alone. In `simulation` agents and daemons
// are at their ends.
//
// Promises (tls/psk_channel.h): the plain bytes that a channel gives are a prefix of those that one other channel was
// given, of the same job and the other role; no two channels hear the same one; a channel ends only where that one has
// closed, and then it gave all; and where nobody interferes everything arrives.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/tls/psk_channel.h"
#include "tests/simulation/host/tamper.h"

namespace {

using namespace muster;
using namespace muster::rendezvous;
using simulation::tamper;
using State = PskChannel::State;

const std::array<std::string, 2> jobs{"one", "two"};
const std::array<JobKey, 2> keys{JobKey(32, '1'), JobKey(32, '2')};
constexpr std::size_t nobody = ~std::size_t{0};
bool plant = false;

const auto daemon_side = PskContext::server([](std::string_view identity) {
    const auto accepted = [](std::string_view job) {
        std::vector<JobKey> found;
        for (std::size_t i = 0; i < 2; ++i)
            if (jobs[i] == job) found.push_back(keys[i]);
        return found;
    };
    return find_control_key(accepted, identity);
});

std::shared_ptr<const PskContext> agent_side(std::size_t job) {
    static const auto sides = [] {
        std::array<std::shared_ptr<const PskContext>, 2> made;
        for (std::size_t i = 0; i < 2; ++i) {
            auto control = control_key(keys[i], jobs[i]);
            made[i] = PskContext::client(control.identity, control.key);
        }
        return made;
    }();
    return sides[job];
}

/// One side of one connection.
struct Side {
    Side(std::size_t of_job, bool agent)
        : job(of_job), is_agent(agent), channel(agent ? agent_side(of_job) : daemon_side) {}
    std::size_t job;  // of an agent; a daemon's is that of its channel's identity
    bool is_agent;
    PskChannel channel;
    std::string said, heard;
    bool closed = false;
    std::string on_the_way;  // what it has sent and the man has not passed on
    std::string recorded;    // all that it has sent
};

class World {
  public:
    explicit World(std::uint64_t seed) : random_(seed), interferes_(seed % 10 != 0) {
        const std::size_t connections = 1 + below(3);
        for (std::size_t i = 0; i < connections; ++i) {
            const std::size_t job = below(2);
            sides_.push_back(std::make_unique<Side>(job, true));
            sides_.push_back(std::make_unique<Side>(job, false));
        }
        for (std::size_t i = 0; i < sides_.size(); ++i) goes_to_.push_back(i ^ 1);
        // Some begin in the handshake, others after it.
        begins_at_ = below(2) == 0 ? below(12) : 12 + below(60);
    }

    /// Empty: all promises were kept.
    std::string run() {
        const std::size_t steps = 60 + below(60);
        for (std::size_t step = 0; step < steps; ++step) {
            say(below(sides_.size()));
            const auto from = below(sides_.size());
            if (interferes_ && step >= begins_at_ && below(4) == 0) interfere(from);
            pass_on(from, 1 + below(400));
            if (auto broken = look(); !broken.empty()) return broken;
        }
        return finish();
    }

    /// False: nobody does, so everything arrives.
    [[nodiscard]] bool interferes() const { return interferes_; }
    [[nodiscard]] std::size_t failed_count() const {
        return static_cast<std::size_t>(
            std::ranges::count_if(sides_, [](const auto& side) { return side->channel.state() == State::failed; }));
    }

  private:
    std::size_t below(std::size_t end) { return random_() % end; }

    void collect(Side& side) {
        const auto bytes = side.channel.output();
        side.on_the_way += bytes;
        side.recorded += bytes;
        side.channel.drop_output(bytes.size());
    }

    void say(std::size_t at) {
        Side& side = *sides_[at];
        if (side.channel.state() == State::open && !side.closed) {
            if (below(40) == 0) {
                side.channel.close();
                side.closed = true;
            } else if (below(2) == 0) {
                std::string words(8 + below(below(10) == 0 ? 20'000 : 200), '\0');
                for (auto& byte : words) byte = static_cast<char>(random_());
                side.channel.write(words);
                side.said += words;
            }
        }
        collect(side);
    }

    void pass_on(std::size_t from, std::size_t count) {
        Side& side = *sides_[from];
        const auto taken = side.on_the_way.substr(0, count);
        side.on_the_way.erase(0, taken.size());
        if (goes_to_[from] != nobody) give(*sides_[goes_to_[from]], taken);
    }

    void give(Side& to, std::string_view wire) {
        std::array<char, 5'000> place;
        while (const auto plain = to.channel.read(wire, std::span(place).first(1 + below(place.size()))))
            to.heard.append(place.data(), plain);
        if (plant && to.channel.state() == State::failed) to.heard += wire;
        collect(to);
    }

    void interfere(std::size_t from) {
        switch (below(9)) {
            default:
                tamper(sides_[from]->on_the_way, sides_[below(sides_.size())]->recorded,
                       [this](std::size_t end) { return below(end); });
                break;
            case 7: std::swap(goes_to_[from], goes_to_[below(sides_.size())]); break;
            case 8:  // a whole connection is said again, to a new channel
                if (sides_.size() < 12) {
                    sides_.push_back(std::make_unique<Side>(0, below(2) == 0));
                    goes_to_.push_back(nobody);
                    give(*sides_.back(), sides_[from]->recorded);
                }
                break;
        }
    }

    [[nodiscard]] static std::string job_of(const Side& side) {
        return side.is_agent ? jobs[side.job] : std::string(job_of_identity(side.channel.identity()));
    }

    /// Whom each channel hears is not told by whom the man connects; it is found by what it has heard.
    std::string look() {
        std::map<const Side*, const Side*> heard_by;
        for (const auto& side : sides_) {
            if (side->heard.empty() && side->channel.state() != State::ended) continue;
            const Side* speaker = nullptr;
            for (const auto& other : sides_)
                if (other->is_agent != side->is_agent && job_of(*other) == job_of(*side) &&
                    std::string_view(other->said).starts_with(side->heard) && !heard_by.contains(other.get()) &&
                    (side->channel.state() != State::ended || (other->closed && other->said == side->heard)))
                    speaker = other.get();
            if (speaker == nullptr)
                return cat(side->is_agent ? "an agent" : "the daemon", " of job '", job_of(*side), "' heard ",
                           side->heard.size(), " bytes", side->channel.state() == State::ended ? " and the end" : "",
                           " that nobody of it has said");
            heard_by[speaker] = side.get();
        }
        return {};
    }

    std::string finish() {
        if (interferes_) return look();
        for (int round = 0; round < 4; ++round)
            for (std::size_t i = 0; i < sides_.size(); ++i) pass_on(i, std::string::npos);
        for (const auto& side : sides_)
            if (side->channel.state() != State::failed) {
                side->channel.close();
                side->closed = true;
                collect(*side);
            }
        for (std::size_t i = 0; i < sides_.size(); ++i) pass_on(i, std::string::npos);
        for (std::size_t i = 0; i < sides_.size(); ++i)
            if (sides_[i]->heard != sides_[i ^ 1]->said || sides_[i]->channel.state() != State::ended)
                return cat("nobody interfered, and ", sides_[i]->heard.size(), " of ", sides_[i ^ 1]->said.size(),
                           " bytes arrived: ", sides_[i]->channel.why());
        return look();
    }

    std::mt19937_64 random_;
    bool interferes_;
    std::size_t begins_at_ = 0;
    std::vector<std::unique_ptr<Side>> sides_;  // 2n: an agent, 2n + 1: the daemon's side of its connection
    std::vector<std::size_t> goes_to_;
};

}  // namespace

int main(int argc, char** argv) {
    plant = argc > 1 && std::string_view(argv[1]) == "--plant";
    if (plant) --argc, ++argv;
    const auto seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 300;
    const auto first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    std::size_t failed = 0, with_man = 0;
    const auto begun = std::chrono::steady_clock::now();
    for (auto seed = first; seed < first + seeds; ++seed) {
        World world(seed);
        if (const auto broken = world.run(); !broken.empty()) {
            std::printf("seed %llu: %s\n  man_in_the_middle 1 %llu\n", seed, broken.c_str(), seed);
            return 1;
        }
        failed += world.failed_count();
        with_man += world.interferes() ? 1 : 0;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    std::printf("%llu seeds in %.1f s, %zu of them with a man in the middle; %zu channels failed closed\n", seeds,
                took.count(), with_man, failed);
    return 0;
}
