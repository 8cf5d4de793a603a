#include "rendezvous/store_client/async_store_session.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/base/sockets/tcp_options.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;
using c10d::Operation;
using c10d::Reply;
using std::chrono::steady_clock;

namespace {

constexpr auto awaited = asio::as_tuple(asio::use_awaitable);

// How long the server has to acknowledge the cancellation of a wait, as in the blocking client.
constexpr Duration cancel_timeout = 1s;

}  // namespace

void AsyncStoreSession::arm(Instant deadline) {
    const auto watch = ++watch_;
    watchdog_.expires_at(deadline);
    watchdog_.async_wait([self = shared_from_this(), watch](boost::system::error_code error) {
        boost::system::error_code ignored;
        if (!error && watch == self->watch_) self->socket_.cancel(ignored);
    });
}

asio::awaitable<void> AsyncStoreSession::idle(Instant until) {
    wake_.expires_at(until);
    [[maybe_unused]] const auto woken = co_await wake_.async_wait(awaited);
}

void AsyncStoreSession::report_connected() {
    for (auto& handler : std::exchange(connected_handlers_, {}))
        handler(failure_ ? Result<void>(*failure_) : Result<void>());
}

asio::awaitable<void> AsyncStoreSession::run(std::shared_ptr<AsyncStoreSession> self) {
    co_await self->connect();
    while (!self->stopped_) {
        self->report_connected();
        if (self->stopped_) break;
        if (self->calls_.empty()) {
            co_await self->idle(no_deadline);
            continue;
        }
        Call call = std::move(self->calls_.front());
        self->calls_.pop_front();
        co_await self->serve(call);
    }
}

asio::awaitable<Result<Resolver::Addresses>> AsyncStoreSession::resolve(Instant deadline) {
    // Shared, because the answer may arrive after this coroutine has ended.
    const auto answer = std::make_shared<std::optional<Result<Resolver::Addresses>>>();
    resolver_.resolve(endpoint_, [self = shared_from_this(), answer](Result<Resolver::Addresses> found) {
        *answer = std::move(found);
        self->wake_.cancel();
    });
    while (!*answer && !stopped_ && steady_clock::now() < deadline) co_await idle(deadline);
    if (!*answer) co_return Error{Errc::timed_out, cat(endpoint_.host, ": the name service does not answer")};
    co_return std::move(**answer);
}

asio::awaitable<void> AsyncStoreSession::connect() {
    const Instant deadline = steady_clock::now() + options_.connect_timeout;
    Duration backoff = options_.backoff_min;
    while (!stopped_) {
        std::vector<std::string> tried;
        const auto found = co_await resolve(deadline);
        if (stopped_) co_return;
        if (!found) tried.push_back(found.error().context);
        const auto addresses = found ? *found : Resolver::Addresses{};
        for (const auto& address : addresses) {
            const Instant until = std::min(deadline, steady_clock::now() + options_.attempt_timeout);
            auto greeted = co_await greet(address, StoreClientCore::Greeting::with_ping, until);
            if (!greeted && greeted.error().code == Errc::peer_closed)
                greeted = co_await greet(address, StoreClientCore::Greeting::without_ping, until);
            if (greeted || stopped_) co_return;
            tried.push_back(cat(address.address().to_string(), ": ", greeted.error().context));
        }
        if (steady_clock::now() + backoff >= deadline) {
            failure_ = Error{Errc::unreachable, cat("no store at ", describe(endpoint_), " within ",
                                                    describe(options_.connect_timeout), ": ", join(tried, "; "))};
            co_return;
        }
        const Instant again = steady_clock::now() + backoff;
        while (!stopped_ && steady_clock::now() < again) co_await idle(again);
        backoff = std::min(backoff * 2, options_.backoff_max);
    }
}

asio::awaitable<Result<void>> AsyncStoreSession::greet(tcp::endpoint address, StoreClientCore::Greeting greeting,
                                                       Instant deadline) {
    boost::system::error_code ignored;
    socket_.close(ignored);
    core_ = StoreClientCore{};
    arm(deadline);
    const auto connected = co_await socket_.async_connect(address, awaited);
    disarm();
    if (const auto error = std::get<0>(connected)) co_return Error{Errc::unreachable, error.message()};
    tune_stream(socket_.native_handle(), store_silence_max);
    std::string hello = core_.open(greeting, static_cast<std::uint32_t>(::getpid()));
    co_await exchange(std::move(hello), deadline);
    if (core_.progress() == Progress::failed) co_return core_.error();
    co_return Result<void>{};
}

// Runs until the core is done, expired or failed.
asio::awaitable<void> AsyncStoreSession::exchange(std::string bytes, Instant deadline) {
    auto progress = core_.progress();
    while (!stopped_) {
        arm(deadline);
        if (!bytes.empty()) {
            const auto written = co_await asio::async_write(socket_, asio::buffer(bytes), awaited);
            disarm();
            bytes.clear();
            if (const auto error = std::get<0>(written)) {
                const bool late = error == asio::error::operation_aborted;
                core_.fail({late ? Errc::timed_out : Errc::peer_closed, cat("send: ", error.message())});
                co_return;
            }
            progress = core_.progress();
        } else {
            const auto read = co_await socket_.async_read_some(asio::buffer(buffer_), awaited);
            disarm();
            const auto error = std::get<0>(read);
            if (!error) {
                progress = core_.receive(std::string_view(buffer_.data(), std::get<1>(read)));
            } else if (error == asio::error::operation_aborted) {
                bytes = core_.timed_out();
                deadline = steady_clock::now() + cancel_timeout;
                progress = core_.progress();
            } else {
                core_.closed(error == asio::error::eof ? "the server closed it" : error.message());
                co_return;
            }
        }
        if (progress != Progress::more) co_return;
    }
}

asio::awaitable<void> AsyncStoreSession::serve(Call& call) {
    const auto finish = [&](Result<Reply> result) {
        if (stopped_) return;
        if (result.has_value()) return call.handler(std::move(result));
        const auto& keys = call.request.keys;
        call.handler(with_context(result.error(),
                                  cat(name(call.request.operation), " ", keys.empty() ? call.request.key : keys.front(),
                                      " at ", describe(endpoint_))));
    };
    if (failure_) co_return finish(*failure_);
    if (core_.progress() == Progress::failed) co_return finish(core_.error());
    if (steady_clock::now() >= call.deadline)
        co_return finish(Error{Errc::timed_out, "the calls before it took too long"});
    const auto request = call.request.view();
    if (auto fits = check_limits(request); !fits) co_return finish(fits.error());
    const bool optional = request.operation == Operation::barrier || request.operation == Operation::queue_push ||
                          request.operation == Operation::queue_pop;
    if (optional && !core_.server_is_ours())
        co_return finish(Error{Errc::unsupported, "the server is not muster's, and may not have it"});

    // PyTorch's servers have no WAIT_GET, so they need two requests.
    auto first = request;
    const bool in_two = request.operation == Operation::wait_get && !core_.server_is_ours();
    if (in_two) first.operation = Operation::wait;
    std::string bytes = core_.request(first);
    co_await exchange(std::move(bytes), call.deadline);
    if (in_two && core_.progress() == Progress::done && !stopped_) {
        first.operation = Operation::multi_get;
        bytes = core_.request(first);
        co_await exchange(std::move(bytes), call.deadline);
    }
    if (core_.progress() == Progress::failed) co_return finish(core_.error());
    if (core_.progress() == Progress::expired)
        co_return finish(Error{Errc::timed_out, "what it waits for did not come in time"});
    finish(std::move(core_.reply()));
}

}  // namespace muster::rendezvous
