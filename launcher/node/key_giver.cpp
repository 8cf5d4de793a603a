#include "launcher/node/key_giver.h"

#include <string.h>
#include <unistd.h>

#include "launcher/node/job_access.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/job_key.h"

namespace muster::launcher {

namespace {

constexpr Duration start_interval = 4ms;  // strangers may ask, too, and 1,000 nodes shall have their key in 4 s
constexpr std::size_t under_way_max = 4;
constexpr std::size_t waiting_max = 4096;
constexpr std::string_view munge_fails_text = "munge does not work on the first node";

}  // namespace

std::unique_ptr<KeyGiver> KeyGiver::make(boost::asio::io_context& loop, const LaunchConfig& config,
                                         const Environment& environment, KeyGiverLimits limits) {
    if (!meets_in_slurm_step(config, environment) || !*config.is_host || config.key.empty()) return nullptr;
    return std::unique_ptr<KeyGiver>(new KeyGiver(loop, munge_key_terms(config.job, environment),
                                                  rendezvous::job_key_text(config.key), config.launch_key, limits));
}

void KeyGiver::ask(const std::string& source, std::string nonce, Gone gone, Answer answer) {
    if (!is_munge_nonce(nonce)) return answer(404, "a nonce has 64 hexadecimal digits\n");
    if (source_ == LaunchKey::home_alone)
        return answer(503, cat(home_key_text, " (unmunge cannot decode what munge makes there)\n"));
    auto place = source_of(source);
    if (waiting_.size() == waiting_max || sources_.contains(place)) forget_gone();
    if (waiting_.size() == waiting_max || !sources_.insert(place).second)
        return answer(503, "the first node is busy with questions for the key\n");
    waiting_.push_back(
        {std::move(place), std::move(nonce), std::move(gone), std::move(answer), std::chrono::steady_clock::now()});
    begin_next();
}

void KeyGiver::forget_gone() {
    std::erase_if(waiting_, [this](const Question& one) { return *one.gone && sources_.erase(one.source) > 0; });
}

void KeyGiver::begin_next() {
    while (!waiting_.empty() && std::chrono::steady_clock::now() - waiting_.front().asked >= limits_.question) {
        sources_.erase(waiting_.front().source);
        waiting_.front().answer(503, "the first node was busy with questions for the key\n");
        waiting_.pop_front();
    }
    if (under_way_ == under_way_max || pauses_) return;
    forget_gone();
    if (waiting_.empty()) return;
    auto question = std::move(waiting_.front());
    waiting_.pop_front();
    start(std::move(question));
    pauses_ = true;
    call_after(pause_, start_interval, [this] {
        pauses_ = false;
        begin_next();
    });
}

void KeyGiver::start(Question question) {
    ++under_way_;
    terms_.nonce = question.nonce;
    auto text = munge_key_text(terms_, key_);
    runs_.start(
        munge_command(::geteuid()), limits_.run,
        [this, question = std::move(question)](const std::string& printed) {
            --under_way_;
            sources_.erase(question.source);
            this->answer(question, printed);
            begin_next();
        },
        text);
    ::explicit_bzero(text.data(), text.size());
}

void KeyGiver::answer(const Question& question, const std::string& printed) {
    const auto wrong = wrong_with_munge(printed);
    if (wrong.empty()) return question.answer(200, cat(munge_credential(printed), '\n'));
    if (printed == no_munge_program) return question.answer(404, cat(lacks_munge_text, '\n'));
    question.answer(503, cat(source_ == LaunchKey::home ? home_key_text : munge_fails_text, " (", wrong, ")\n"));
}

}  // namespace muster::launcher
