#include "rendezvous/servers/secret_reload.h"

#include <mutex>
#include <string>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"

namespace muster::rendezvous {

/// Shared with the thread, which may outlive the loop.
struct SecretReload::Mailbox {
    std::mutex mutex;
    SecretReload* owner = nullptr;
};

SecretReload::SecretReload(EventLoop& loop, std::shared_ptr<Secrets> secrets, Read read, Duration patience)
    : loop_(loop),
      secrets_(std::move(secrets)),
      read_(std::move(read)),
      patience_(patience),
      mailbox_(std::make_shared<Mailbox>()) {
    mailbox_->owner = this;
    loop_.add(*this);
}

SecretReload::~SecretReload() {
    loop_.remove(*this);
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->owner = nullptr;
}

void SecretReload::start() {
    if (!secrets_) return log(LogLevel::warning, "SIGHUP: musterd was started without a secret; restart it to use one");
    again_ = reading_;
    if (reading_) return;
    auto thread = start_thread("muster-secret", [read = read_, mailbox = mailbox_] {
        auto found = std::make_shared<Result<Secrets>>(read());
        const std::lock_guard lock(mailbox->mutex);
        if (mailbox->owner == nullptr) return;
        mailbox->owner->loop_.post([mailbox, found] {
            // On the loop's thread, which alone destroys the owner.
            if (mailbox->owner != nullptr) mailbox->owner->finish(std::move(*found));
        });
    });
    if (!thread) return finish(thread.error());
    thread->detach();
    reading_ = true;
    late_at_ = std::chrono::steady_clock::now() + patience_;
}

Instant SecretReload::turn(Instant now) {
    if (now < late_at_) return late_at_;
    late_at_ = no_deadline;
    log(LogLevel::error, "SIGHUP: the secret is not changed yet: reading it takes longer than ", describe(patience_),
        ", probably because a file server does not answer. It is replaced as soon as it is read");
    return late_at_;
}

/// Agents that are connected stay so; others have to have one of the secrets that are found now.
void SecretReload::finish(Result<Secrets> found) {
    reading_ = false;
    late_at_ = no_deadline;
    if (!found || found->empty()) {
        log(LogLevel::error, "SIGHUP: the secret is not changed: ",
            found ? std::string("it is set nowhere any more; see muster key --help") : found.error().context);
    } else {
        std::vector<std::string> origins;
        for (const auto& secret : *found) origins.push_back(secret.origin);
        *secrets_ = *std::move(found);
        log(LogLevel::info, "SIGHUP: the secret was read again from ", join(origins, "; accepted too: "));
    }
    if (std::exchange(again_, false)) start();
}

}  // namespace muster::rendezvous
