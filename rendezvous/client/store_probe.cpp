#include "rendezvous/client/store_probe.h"

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/c10d/reply.h"
#include "rendezvous/wire/c10d/request.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

/// From one question to the next, and for the answer.
constexpr Duration store_probe_interval = 5s;

/// The handshake, and whether two keys exist: torchrun's state of the job, and the one that our own store alone has.
std::string request_of(const std::string& job) {
    std::string bytes;
    c10d::Request request;
    request.nonce = c10d::handshake_magic;
    c10d::encode_request(c10d::Family::newer, request, bytes);
    const auto state = cat("/torch.rendezvous.", job);
    for (const std::string_view key : {std::string_view(state), c10d::probe_key}) {
        request.operation = c10d::Operation::check;
        request.keys = {key};
        c10d::encode_request(c10d::Family::newer, request, bytes);
    }
    return bytes;
}

class StoreProbe : public std::enable_shared_from_this<StoreProbe> {
  public:
    StoreProbe(asio::io_context& io, const std::string& job, std::function<void(bool)> handler)
        : timer_(io), socket_(io), handler_(std::move(handler)), bytes_(request_of(job)) {}

    void start(const tcp::endpoint& remote) {
        timer_.expires_after(store_probe_interval);
        timer_.async_wait([self = shared_from_this()](const boost::system::error_code&) { self->close(); });
        socket_.async_connect(remote, [self = shared_from_this()](const boost::system::error_code& failure) {
            if (failure) return self->end();
            self->ask();
        });
    }

  private:
    void ask() {
        asio::async_write(socket_, asio::buffer(bytes_),
                          [self = shared_from_this()](const boost::system::error_code&, std::size_t) {});
        asio::async_read(socket_, asio::buffer(answers_),
                         [self = shared_from_this()](const boost::system::error_code& failure, std::size_t) {
                             if (!failure) self->judge();
                             self->end();
                         });
    }

    void judge() {
        const auto [state, probe] = answers_;
        const bool is_store = probe == c10d::not_ready && (state == c10d::ready || state == c10d::not_ready);
        if (is_store) handler_(state == c10d::ready);
    }

    void end() { timer_.cancel(); }

    void close() {
        boost::system::error_code ignored;
        socket_.close(ignored);
    }

    asio::steady_timer timer_;
    tcp::socket socket_;
    std::function<void(bool)> handler_;
    std::string bytes_;
    std::array<char, 2> answers_{};
};

}  // namespace

void ask_store(asio::io_context& io, Instant& asked_at, const StoreProbeTarget& question,
               std::function<void(bool)> handler) {
    const auto now = std::chrono::steady_clock::now();
    boost::system::error_code wrong;
    const auto address = asio::ip::make_address(question.remote.host, wrong);
    if (wrong || now < asked_at + store_probe_interval) return;
    asked_at = now;
    std::make_shared<StoreProbe>(io, question.job, std::move(handler))->start({address, question.remote.port});
}

}  // namespace muster::rendezvous
