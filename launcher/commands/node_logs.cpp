#include "launcher/commands/node_logs.h"

#include <boost/asio/write.hpp>
#include <utility>

#include "agent/output/log_files.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/sockets/tcp_options.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using rendezvous::PskChannel;

namespace {

constexpr std::size_t head_bytes_max = 8192;
constexpr Duration look_interval = 1s;
constexpr std::string_view refused_by_address =
    "; a job that was started with --allow-from answers the hosts that it names: run the command on one of them";

/// The status and the sentence of an answer that is no stream.
std::string refusal_in(std::string_view head) {
    const auto body = head.find("\r\n\r\n");
    const auto status = head.substr(0, head.find("\r\n"));
    if (!status.starts_with("HTTP/1.1 ")) return "no agent of muster answers at its port";
    const auto text = body == std::string_view::npos ? std::string_view() : trim(head.substr(body + 4));
    return text.empty() ? cat("it answers ", printable_line(status.substr(9))) : printable_line(text);
}

}  // namespace

std::shared_ptr<NodeLogs> NodeLogs::start(asio::io_context& io, rendezvous::Resolver& resolver, Request request,
                                          Handlers handlers) {
    auto node = std::make_shared<NodeLogs>(io, resolver, std::move(request), std::move(handlers));
    node->connect();
    return node;
}

NodeLogs::NodeLogs(asio::io_context& io, rendezvous::Resolver& resolver, Request request, Handlers handlers)
    : io_(io),
      resolver_(resolver),
      request_(std::move(request)),
      handlers_(std::move(handlers)),
      socket_(io),
      timer_(io) {
    reader_.drop_up_to(request_.known);
}

void NodeLogs::connect() {
    connector_ = rendezvous::Connector::start(
        io_, resolver_, request_.agent, {.resolve = answer_max, .attempt = answer_max},
        [node = shared_from_this()](Result<tcp::socket> socket) { node->connected(std::move(socket)); });
}

void NodeLogs::cancel() {
    handlers_ = {};
    timer_.cancel();
    if (const auto connector = connector_.lock()) connector->cancel();
    if (const auto handshake = handshake_.lock()) handshake->cancel();
    error_code ignored;
    socket_.close(ignored);
}

void NodeLogs::finish(std::string why) {
    if (const auto end = std::exchange(handlers_.end, nullptr)) {
        cancel();
        end(std::move(why));
    }
}

void NodeLogs::connected(Result<tcp::socket> socket) {
    if (!handlers_.end) return;
    if (!socket) return finish(cat("it cannot be reached: ", socket.error().context));
    const auto& key = request_.ways[way_at_];
    if (!key) {
        socket_ = *std::move(socket);
        return ask();
    }
    handshake_ = rendezvous::TlsHandshake::start(
        io_, *std::move(socket), rendezvous::PskContext::client(key->identity, key->key),
        [self = shared_from_this()](rendezvous::TlsHandshake::Outcome outcome) {
            if (!self->handlers_.end) return;
            self->socket_ = std::move(outcome.socket);
            self->channel_ = std::move(outcome.channel);
            if (self->channel_->state() == PskChannel::State::open) return self->ask();
            const auto failure = self->channel_->failure();
            const bool is_refused = failure == PskChannel::Failure::wrong_key || failure == PskChannel::Failure::no_key;
            if (!is_refused) return self->finish(cat("TLS failed: ", outcome.why, refused_by_address));
            self->channel_.reset();
            // It may have been started before the secret was changed, or after.
            if (++self->way_at_ < self->request_.ways.size()) return self->connect();
            self->finish(failure == PskChannel::Failure::wrong_key
                             ? "it has another key of the job; give the same secret to this command"
                             : "it has no key; run the command without a secret on that node, or in clear text with "
                               "--insecure");
        });
}

void NodeLogs::ask() {
    tune_stream(socket_.native_handle(), silence_max);
    // Without a Host: no browser asks.
    writing_ = cat("GET ", request_.target, " HTTP/1.0\r\n\r\n");
    if (channel_) {
        channel_->write(writing_);
        writing_ = channel_->output();
        channel_->drop_output(writing_.size());
    }
    asked_at_ = std::chrono::steady_clock::now();
    asked_ns_ = agent::log_time_ns();
    watch();
    asio::async_write(socket_, asio::buffer(writing_),
                      [self = shared_from_this()](const error_code& failure, std::size_t) {
                          if (failure) self->finish(cat("it does not take the question: ", failure.message()));
                      });
    read();
}

void NodeLogs::watch() {
    call_after(timer_, look_interval, [self = shared_from_this()] {
        if (!self->handlers_.end) return;
        if (!self->is_paused_) ++self->silent_looks_;
        const auto silence = self->silent_looks_ * look_interval;
        if (!self->has_clock_ && silence >= answer_max)
            return self->finish(cat("it does not answer within ", describe(answer_max)));
        if (self->has_clock_ && silence >= silence_max)
            return self->finish(cat("nothing has come from it for ", describe(silence_max)));
        self->watch();
    });
}

void NodeLogs::read() {
    if (is_reading_ || is_paused_ || !handlers_.end) return;
    is_reading_ = true;
    socket_.async_read_some(asio::buffer(input_),
                            [self = shared_from_this()](const error_code& failure, std::size_t count) {
                                self->is_reading_ = false;
                                if (!self->handlers_.end) return;
                                if (self->has_clock_) self->silent_looks_ = 0;
                                if (count > 0) self->take({self->input_.data(), count});
                                if (!failure) return self->read();
                                if (self->has_ended_) return self->finish({});
                                if (!self->has_head_ && !self->head_.empty())
                                    return self->finish(refusal_in(self->head_));
                                self->finish(self->has_head_ ? std::string("its connection has ended")
                                                             : cat("it closes the connection", refused_by_address));
                            });
}

void NodeLogs::take(std::string_view wire) {
    if (!channel_) return take_plain(wire);
    std::array<char, 16 << 10> plain;
    while (handlers_.end) {
        const auto count = channel_->read(wire, plain);
        if (count == 0) break;
        take_plain({plain.data(), count});
    }
    if (channel_->state() == PskChannel::State::failed) finish(cat("TLS failed: ", channel_->why()));
}

void NodeLogs::take_plain(std::string_view bytes) {
    if (!has_head_) {
        head_ += bytes;
        if (!take_head()) return;
    } else {
        reader_.append(bytes);
    }
    give();
}

bool NodeLogs::take_head() {
    const auto end = head_.find("\r\n\r\n");
    if (end == std::string::npos || !head_.starts_with("HTTP/1.1 200")) {
        if (head_.size() > head_bytes_max) finish("no agent of muster answers at its port");
        return false;  // A refusal is whole when the connection has ended.
    }
    has_head_ = true;
    reader_.append(std::string_view(head_).substr(end + 4));
    head_.clear();
    return true;
}

void NodeLogs::give() {
    while (handlers_.message && !is_paused_) {
        auto message = reader_.next();
        if (!message) return finish(message.error().context);
        if (!*message) return;
        if (const auto* clock = std::get_if<agent::LogClock>(&**message)) {
            has_clock_ = true;
            silent_looks_ = 0;
            // It was read somewhere between the question and now: half of that is the most that it can be wrong.
            const auto took = std::chrono::steady_clock::now() - asked_at_;
            handlers_.clock(clock->now_ns - asked_ns_ - std::chrono::nanoseconds(took).count() / 2);
        } else if (std::holds_alternative<agent::LogEnd>(**message)) {
            has_ended_ = true;
            return finish({});
        } else if (!handlers_.message(std::move(**message))) {
            is_paused_ = true;
        }
    }
}

void NodeLogs::resume() {
    if (!std::exchange(is_paused_, false)) return;
    const auto self = shared_from_this();  // The end may be among what is given, and its handler drops us.
    give();
    read();
}

}  // namespace muster::launcher
