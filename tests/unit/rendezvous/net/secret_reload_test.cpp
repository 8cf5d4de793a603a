#include "rendezvous/servers/secret_reload.h"

#include <condition_variable>
#include <mutex>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

constexpr Duration test_patience = 60s;

/// A file server: each read waits until the test lets it go on.
class SlowFile {
  public:
    [[nodiscard]] SecretReload::Read reader() {
        return [state = state_] {
            std::unique_lock lock(state->mutex);
            ++state->asked;
            state->changed.notify_all();
            state->changed.wait_for(lock, test_patience, [&] { return state->let_go >= state->asked; });
            return Result<std::vector<Secret>>(
                std::vector<Secret>{{.text = std::string("the new one"), .origin = "file"}});
        };
    }
    void let_go(int count) {
        const std::lock_guard lock(state_->mutex);
        state_->let_go = count;
        state_->changed.notify_all();
    }
    [[nodiscard]] bool was_asked(int count) {
        std::unique_lock lock(state_->mutex);
        return state_->changed.wait_for(lock, test_patience, [&] { return state_->asked >= count; });
    }

  private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        int asked = 0;
        int let_go = 0;
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();  // a reader may outlive the test
};

/// The secret as the loop's thread knows it.
std::string text_of(EventLoop& loop, const std::shared_ptr<std::vector<Secret>>& secrets) {
    std::string text;
    loop.invoke([&] { text = secrets->front().text; });
    return text;
}

bool becomes(EventLoop& loop, const std::shared_ptr<std::vector<Secret>>& secrets, const std::string& wanted) {
    const auto end = std::chrono::steady_clock::now() + test_patience;
    while (text_of(loop, secrets) != wanted)
        if (std::chrono::steady_clock::now() > end) return false;
    return true;
}

}  // namespace

TEST_CASE("a secret's file that does not answer holds up no daemon, and counts when it does") {
    const auto secrets =
        std::make_shared<std::vector<Secret>>(1, Secret{.text = std::string("the old one"), .origin = "file"});
    SlowFile file;
    EventLoop loop;
    std::unique_ptr<SecretReload> reload;
    REQUIRE(loop.start_thread().has_value());
    loop.invoke([&] {
        reload = std::make_unique<SecretReload>(loop, secrets, file.reader(), 0s);
        reload->start();
    });
    REQUIRE(file.was_asked(1));
    CHECK(text_of(loop, secrets) == "the old one");  // the loop answers meanwhile
    loop.invoke([&] { reload->start(); });           // a second SIGHUP
    CHECK(text_of(loop, secrets) == "the old one");
    file.let_go(1);
    CHECK(becomes(loop, secrets, "the new one"));
    REQUIRE(file.was_asked(2));  // the file may have changed after the first look
    // The daemon ends during the second one.
    loop.invoke([&] { reload.reset(); });
    file.let_go(2);
}
