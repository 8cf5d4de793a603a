#include "rendezvous/state/etcd/etcd_state.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/thread_start.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/state/etcd/http_caller.h"
#include "rendezvous/state/etcd/record_seal.h"

namespace muster::rendezvous {

namespace asio = boost::asio;

namespace {

constexpr Duration resign_timeout = 5s;

Instant now() {
    return std::chrono::steady_clock::now();
}

}  // namespace

class EtcdState::Implementation {
  public:
    Implementation(EtcdPlace place, std::string self, PostToDaemon post)
        : place_(std::move(place)), core_(config(place_, std::move(self))), post_(std::move(post)) {}

    /// Calls the callbacks of `owner` on the daemon's thread until stop().
    Result<void> start(EtcdState* owner) {
        caller_ = MUSTER_TRY(HttpCaller::open(io_, place_.members, place_.tls));
        for (std::size_t i = 0; i < place_.known_addresses.size(); ++i) caller_->know(i, place_.known_addresses[i]);
        owner_ = std::make_shared<EtcdState*>(owner);
        asio::post(io_, [this] { carry_out(core_.start(now())); });
        thread_ = MUSTER_TRY(start_thread("etcd", [this] { io_.run(); }));
        return {};
    }

    /// On the daemon's thread.
    void stop() {
        if (!thread_.joinable()) return;
        *owner_ = nullptr;
        asio::post(io_, [this] {
            stopping_ = true;
            resign_timer_.expires_after(resign_timeout);
            resign_timer_.async_wait([this](const boost::system::error_code&) { io_.stop(); });
            carry_out(core_.resign(now()));
            check_over();
        });
        thread_.join();
    }

    void write(std::uint64_t sequence, std::vector<Record> records) {
        const auto keys = record_keys();
        for (auto& record : records)
            if (!record.value.empty()) record.value = seal(keys, core_.state_key(record.key), record.value);
        // A step of an earlier term of leadership does not belong to the current one.
        asio::post(io_, [this, sequence, term = served_, records = std::move(records)]() mutable {
            if (term == term_) carry_out(core_.write(sequence, std::move(records), now()));
        });
    }

    void sweep_at_end() {
        asio::post(io_, [this] { core_.sweep_at_end(); });
    }

    [[nodiscard]] bool may_speak() const {
        return now().time_since_epoch().count() < leads_until_.load(std::memory_order_relaxed);
    }

  private:
    static EtcdConfig config(const EtcdPlace& place, std::string self) {
        EtcdConfig config;
        config.prefix = place.prefix;
        config.is_of_one_job = place.is_of_one_job;
        config.candidate = !self.empty();
        config.self = std::move(self);
        config.user = place.login.user;
        config.password = place.login.password;
        config.endpoint_count = place.members.size();
        return config;
    }

    void carry_out(EtcdCore::Outputs outputs) {
        // Set before the outputs: a daemon that learns that it is the leader may send messages.
        leads_until_.store(core_.leads_until().time_since_epoch().count(), std::memory_order_relaxed);
        for (auto& output : outputs) std::visit([this](auto& one) { carry_out(one); }, output);
        arm();
    }

    void carry_out(const SendToEtcd& ask) {
        auto call = encode(ask.request);
        ++open_count_;
        caller_->post({ask.endpoint, std::move(call.path), std::move(call.body), ask.token}, ask.timeout,
                      [this, ask](Result<HttpResponse> response) {
                          --open_count_;
                          carry_out(core_.answered(ask.id, read(ask, response), now()));
                          check_over();
                      });
    }
    void check_over() {
        if (stopping_ && core_.resigned() && open_count_ == 0) io_.stop();
    }
    [[nodiscard]] Result<EtcdAnswer> read(const SendToEtcd& ask, const Result<HttpResponse>& response) const {
        if (!response) return response.error();
        auto answer = decode_answer(ask.request, response->status, response->body);
        if (!answer) return with_context(answer.error(), describe(place_.members[ask.endpoint]));
        return answer;
    }
    void carry_out(Lead& lead) {
        tell([this, records = std::move(lead.records), aside = core_.aside_key(), term = ++term_](EtcdState& state) {
            auto kept = take_over(records, aside, term);
            served_ = term;
            if (state.leads) state.leads(std::move(kept));
        });
    }

    /// On the daemon's thread, as all that asks for the keys.
    KeptState take_over(const std::vector<Record>& records, const std::string& aside, std::uint64_t term) {
        auto found = unseal_all(record_keys(), core_.state_key({}), records);
        if (!found.refused.empty())
            log(LogLevel::error, found.refused.size(), " of ", records.size(), " records below ", place_.prefix,
                " in etcd are refused: ", found.why, "; moved to ", aside,
                "; the rest is not taken for complete, so this daemon waits for the agents of running jobs");
        auto kept = decode_state(found.good);
        if (!kept) {
            log(LogLevel::error, "the state below ", place_.prefix, " in etcd: ", kept.error().context, "; moved to ",
                aside, "; this daemon starts with an empty state, and the agents of running jobs send theirs again");
            found.refused = records;
            found.resealed.clear();
        }
        // Before any write of this daemon.
        asio::post(io_, [this, term, found = std::move(found)]() mutable {
            if (term != term_) return;
            if (!found.refused.empty()) carry_out(core_.set_aside(found.refused, now()));
            if (!found.resealed.empty()) carry_out(core_.write(0, std::move(found.resealed), now()));
        });
        return kept ? *std::move(kept) : KeptState{};
    }

    [[nodiscard]] std::vector<std::string> record_keys() const {
        return place_.record_keys ? place_.record_keys() : std::vector<std::string>{};
    }
    void carry_out(const StandBy& stand_by) { tell(&EtcdState::stands_by, stand_by.leader); }
    void carry_out(const Kept& kept) { tell(&EtcdState::persisted, kept.sequence); }
    void carry_out(const Failing& failing) { tell(&EtcdState::failing, failing.why); }
    void carry_out(const LogNote& remark) {
        log(LogLevel::warning, remark.line);
        tell(&EtcdState::remarks, remark.line);
    }

    void tell(std::function<void(EtcdState&)> what) {
        post_([owner = owner_, what = std::move(what)] {
            if (*owner != nullptr) what(**owner);
        });
    }
    /// Calls one of the daemon's handlers, if it is set.
    template <class Argument, class Value>
    void tell(std::function<void(Argument)> StateStore::*handler, Value value) {
        tell([handler, value = std::move(value)](EtcdState& state) {
            if (state.*handler) (state.*handler)(value);
        });
    }

    void arm() {
        const auto deadline = core_.deadline();
        if (deadline == armed_for_) return;
        armed_for_ = deadline;
        timer_.cancel();
        if (deadline == no_deadline) return;
        timer_.expires_at(deadline);
        timer_.async_wait([this](const boost::system::error_code& stopped) {
            if (stopped) return;
            armed_for_ = no_deadline;
            carry_out(core_.tick(now()));
        });
    }

    const EtcdPlace place_;
    EtcdCore core_;
    PostToDaemon post_;
    std::shared_ptr<EtcdState*> owner_;
    std::uint64_t term_ = 0;    // number of the last term of leadership; etcd's thread
    std::uint64_t served_ = 0;  // the term whose steps are written; the daemon's thread
    std::atomic<Instant::rep> leads_until_{Instant::min().time_since_epoch().count()};

    // Accessed only on etcd's thread.
    asio::io_context io_{1};
    asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
    asio::steady_timer timer_{io_};
    asio::steady_timer resign_timer_{io_};
    std::unique_ptr<HttpCaller> caller_;
    Instant armed_for_ = no_deadline;
    std::size_t open_count_ = 0;
    bool stopping_ = false;
    std::thread thread_;
};

Result<std::unique_ptr<EtcdState>> EtcdState::open(EtcdPlace place, std::string self, PostToDaemon post) {
    auto state = std::unique_ptr<EtcdState>(
        new EtcdState(std::make_unique<Implementation>(std::move(place), std::move(self), std::move(post))));
    MUSTER_TRY(state->implementation_->start(state.get()));
    return state;
}

EtcdState::EtcdState(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}

EtcdState::~EtcdState() {
    implementation_->stop();
}

void EtcdState::write(std::uint64_t sequence, std::vector<Record> records) {
    implementation_->write(sequence, std::move(records));
}

void EtcdState::sweep_at_end() {
    implementation_->sweep_at_end();
}

bool EtcdState::may_speak() const {
    return implementation_->may_speak();
}

}  // namespace muster::rendezvous
