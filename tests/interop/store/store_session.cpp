// All operations of our store client on the server at HOST PORT, whoever wrote it. Prints "ours" for our own server,
// and "done"; exits with 1 and a line at the first wrong answer.
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "rendezvous/store_client/store_client.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

void check(bool right, std::source_location where = std::source_location::current()) {
    if (right) return;
    std::printf("wrong answer at line %u\n", unsigned{where.line()});
    std::exit(1);
}

template <class T>
T good(Result<T> result, std::source_location where = std::source_location::current()) {
    if (result.has_value()) return std::move(*result);
    std::printf("line %u: %s\n", unsigned{where.line()}, describe(result.error()).c_str());
    std::exit(1);
}

void good(Result<void> result, std::source_location where = std::source_location::current()) {
    if (result.has_value()) return;
    std::printf("line %u: %s\n", unsigned{where.line()}, describe(result.error()).c_str());
    std::exit(1);
}

void values(StoreClient& client) {
    good(client.set("key", std::string_view("\0value", 6)));
    check(good(client.get("key")) == std::string_view("\0value", 6));
    good(client.set("a", "1"));
    good(client.set("b", ""));
    check(good(client.multi_get({"b", "a"})) == std::vector<std::string>{"", "1"});
    check(good(client.add("n", 5)) == 5);
    check(good(client.add("n", -7)) == -2);
    check(good(client.get("n")) == "-2");
    check(good(client.check({"a", "b"})));
    check(!good(client.check({"a", "missing"})));
    check(good(client.delete_key("a")));
    check(!good(client.delete_key("a")));
    const std::string large(8 * 1024 * 1024, 'L');
    good(client.set("large", large));
    check(good(client.get("large")) == large);
}

void waits(StoreClient& client, StoreClient& other) {
    const auto late = client.wait({"never"}, 100ms);
    check(!late.has_value() && late.error().code == Errc::timed_out);
    const auto missing = client.get("never", 100ms);
    check(!missing.has_value() && missing.error().code == Errc::timed_out);
    std::thread setter([&] {
        good(other.set("w1", "1"));
        good(other.set("w2", "2"));
    });
    check(good(client.multi_get({"w1", "w2"})) == std::vector<std::string>{"1", "2"});
    setter.join();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const Endpoint endpoint{argv[1], static_cast<std::uint16_t>(std::atoi(argv[2]))};
    const StoreClientOptions options{.connect_timeout = 30s, .timeout = 30s, .attempt_timeout = 15s};
    auto client = good(StoreClient::connect(endpoint, options));
    auto other = good(StoreClient::connect(endpoint, options));
    if (client.server_is_ours()) std::puts("ours");
    values(client);
    waits(client, other);
    std::puts("done");
    return 0;
}
