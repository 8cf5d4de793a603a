#include "agent/channel/agent_channel.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <set>
#include <utility>

#include "agent/channel/local_listener.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/known_step.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/wire/local/codec.h"

namespace muster::agent {

namespace asio = boost::asio;

namespace {

/// Unique on this machine, and not to be guessed before it is read from the worker's environment.
std::string fresh_address(std::uint32_t local_rank) {
    std::random_device random;
    return cat("@muster/", ::getpid(), '/', random(), random(), '/', local_rank);
}

/// Of each directory. A rank that dies may have given one less than the others.
constexpr std::size_t snapshots_kept = 2;
/// Of two directories, with two of a round before and the first of this one.
constexpr std::size_t snapshots_kept_in_all = 6;
/// Of all other ranks together: those of eight, whose node is larger than the next one, with one of this round each.
constexpr std::size_t copies_kept_in_all = 24;

/// Between two looks at a connection that cannot be taken because descriptors have run out.
constexpr Duration accept_pause = 200ms;

/// Connections that have not shown the token, at one time, and how long each may take. The oldest gives way.
constexpr std::size_t newcomers_max = 8;
constexpr Duration newcomer_limit = 5s;

/// A worker that never stops talking must not keep the loop: some datagrams, then everybody else's turn.
constexpr int turn_datagrams_max = 64;
/// Of a worker that has ended. More than a socket buffer of 32 MiB holds; a child of the worker may talk on.
constexpr int rest_datagrams_max = 1 << 16;

/// Of one rank and one directory.
bool alike(const MemoryHandover& a, const MemoryHandover& b) {
    return a.rank == b.rank && a.directory == b.directory;
}

/// Of those like `fresh` that rounds before gave, training has gone back behind the later steps; and of one step that
/// several rounds came to the last counts: had all ranks had the one before, they had gone on from it.
void drop_overtaken(std::vector<MemoryHandover>& handovers, const MemoryHandover& fresh) {
    std::set<std::int64_t> steps;
    for (auto gift = handovers.rbegin(); gift != handovers.rend(); ++gift) {
        if (gift->earlier && alike(*gift, fresh) && !steps.insert(gift->step).second) gift->step = -1;
    }
    std::erase_if(handovers, [&](const MemoryHandover& gift) {
        return gift.earlier && alike(gift, fresh) && (gift.step < 0 || gift.step > fresh.step);
    });
}

/// Leaves the newest `most` of those like `model`, of a round before or of this one.
void keep_newest(std::vector<MemoryHandover>& handovers, const MemoryHandover& model, bool earlier, std::size_t most) {
    const auto is_one = [&](const MemoryHandover& gift) { return gift.earlier == earlier && alike(gift, model); };
    auto count = static_cast<std::size_t>(std::ranges::count_if(handovers, is_one));
    for (; count > most; --count) handovers.erase(std::ranges::find_if(handovers, is_one));
}

}  // namespace

AgentChannel::AgentChannel(asio::io_context& loop, std::string address, FileDescriptor socket)
    : loop_(loop),
      address_(std::move(address)),
      listener_(loop, socket.release()),
      worker_(loop),
      accept_timer_(loop) {}

AgentChannel::~AgentChannel() {
    ::explicit_bzero(ranks_key_.data(), ranks_key_.size());
}

void AgentChannel::wait_for_worker() {
    call_when_readable(listener_, [self = shared_from_this()] {
        if (!self->closed_) self->accept();
    });
}

void AgentChannel::accept() {
    const bool refused = !take_connection() && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
    if (!refused) {
        wait_for_worker();
    } else {
        // EMFILE, say: the connection stays in the queue, and the listener readable. Not again at once.
        call_after(accept_timer_, accept_pause, [self = shared_from_this()] {
            if (!self->closed_) self->wait_for_worker();
        });
    }
}

bool AgentChannel::take_connection() {
    FileDescriptor socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return false;
    // Strangers get nothing.
    if (peer_is_our_user(socket.get())) receive(std::move(socket));
    return true;
}

void AgentChannel::receive(FileDescriptor socket) {
    if (newcomers_.size() == newcomers_max) {
        // Its first message may lie there unread.
        answer(newcomers_.front());
        dismiss(newcomers_.front());
    }
    auto newcomer = std::make_shared<Newcomer>(loop_, std::move(socket));
    newcomers_.push_back(newcomer);
    call_after(newcomer->timer, newcomer_limit, [self = shared_from_this(), newcomer] { self->dismiss(newcomer); });
    hear(newcomer);
}

void AgentChannel::hear(const std::shared_ptr<Newcomer>& newcomer) {
    call_when_readable(newcomer->socket, [self = shared_from_this(), newcomer] {
        if (self->closed_ || !newcomer->socket.is_open()) return;
        // A wake-up may be meant for an earlier descriptor of the same number.
        if (!self->answer(newcomer)) return self->hear(newcomer);
        self->dismiss(newcomer);
    });
}

void AgentChannel::dismiss(const std::shared_ptr<Newcomer>& newcomer) {
    const auto kept = newcomer;  // the caller's may be an element of the list
    std::erase(newcomers_, kept);
    kept->timer.cancel();
    boost::system::error_code ignored;
    kept->socket.close(ignored);
}

bool AgentChannel::answer(const std::shared_ptr<Newcomer>& newcomer) {
    const int socket = newcomer->socket.native_handle();
    const auto datagram = receive_datagram(socket, local::datagram_bytes_max, 1);
    if (!datagram && errno == EAGAIN) return false;
    if (!datagram || datagram->bytes.empty()) return true;
    const auto message = datagram->cut ? Result<local::Message>(Error{Errc::bad_frame, "too long"})
                                       : local::decode(datagram->bytes, local::Sender::worker);
    const auto* ask = message ? std::get_if<local::AskRanksKey>(&*message) : nullptr;
    const auto* hello = message ? std::get_if<local::Hello>(&*message) : nullptr;
    if (!is_known(ask != nullptr ? ask->token : hello != nullptr ? hello->token : std::string())) return true;
    if (ask != nullptr) give_key(socket);
    if (hello != nullptr) seat(*newcomer, *hello);
    return true;
}

/// One worker, one connection: a second one (a forked data loader) is closed at once.
void AgentChannel::seat(Newcomer& newcomer, const local::Hello& hello) {
    // The end of the one before may lie in the queue still.
    if (worker_.is_open() && has_hung_up(worker_.native_handle())) read_some(rest_datagrams_max);
    if (worker_.is_open()) return;
    FileDescriptor socket(newcomer.socket.release());
    boost::system::error_code failure;
    worker_.assign(socket.get(), failure);
    if (failure) return;
    static_cast<void>(socket.release());
    facts_ = {};
    facts_.connected = true;
    note(hello);
    offer(local::HandoverKind::snapshot);
    offer(local::HandoverKind::copy);
    if (warning_) deliver(*warning_);
    read();
}

bool AgentChannel::is_known(const std::string& token) {
    if (same_digest(token, token_)) return true;
    // Once: it may ask for ever.
    if (!std::exchange(refused_, true))
        log(LogLevel::warning, "a process of this user connected to ", address_,
            " without the token of its worker, and was refused; if it is the worker's own program, start it with "
            "MUSTER_AGENT_TOKEN as the worker has it");
    return false;
}

void AgentChannel::give_key(int socket) {
    if (ranks_key_.empty()) return;
    if (send_datagram(socket, local::encode(local::RanksKey{ranks_key_})) != 0)
        log(LogLevel::info, "the key of the ranks did not reach the worker at ", address_);
}

void AgentChannel::wait_for_message() {
    call_when_readable(worker_, [self = shared_from_this()] {
        if (!self->closed_) self->read();
    });
}

void AgentChannel::read() {
    read_some(turn_datagrams_max);
    if (worker_.is_open()) wait_for_message();
}

void AgentChannel::catch_up() {
    const auto self = shared_from_this();  // who hears of a message may close this
    for (std::size_t i = 0; i < newcomers_max && !closed_ && take_connection(); ++i) {
    }
    for (const auto& newcomer : std::deque(newcomers_))
        if (answer(newcomer)) dismiss(newcomer);
    read_some(turn_datagrams_max);
}

void AgentChannel::read_the_rest() {
    for (const auto& newcomer : std::deque(newcomers_)) {
        answer(newcomer);
        dismiss(newcomer);
    }
    read_some(rest_datagrams_max);
}

void AgentChannel::read_some(int most) {
    for (int i = 0; i < most && worker_.is_open(); ++i) {
        auto datagram = receive_datagram(worker_.native_handle(), local::datagram_bytes_max, 1);
        if (!datagram && errno == EAGAIN) return;
        if (!datagram || datagram->bytes.empty()) return hang_up();
        if (!take(*std::move(datagram))) {
            log(LogLevel::warning, "the worker at ", address_,
                " violated the channel's protocol; its channel is closed");
            return hang_up();
        }
    }
}

bool AgentChannel::take(Datagram datagram) {
    const auto message = local::decode(datagram.bytes, local::Sender::worker);
    if (message.has_error()) return message.error().code == Errc::unsupported && !datagram.cut;
    const auto* give = std::get_if<local::Give>(&message.value());
    const bool brings = give != nullptr || std::holds_alternative<local::Steps>(message.value());
    if (brings && datagram.descriptors.empty()) {
        // Cut: the worker did send it, and this process had no room for it.
        if (datagram.cut)
            log(LogLevel::warning, "the agent has too many open files to keep what the worker at ", address_,
                " gave it (", local::name(message.value()), "), which is lost; raise the limit (ulimit -n)");
        return datagram.cut;
    }
    if (datagram.cut) return false;
    if (give != nullptr) {
        keep(*give, std::move(datagram.descriptors.front()));
    } else if (brings) {
        step_record_ = std::move(datagram.descriptors.front());
    }
    // Both come first, on connections of their own.
    if (std::holds_alternative<local::AskRanksKey>(message.value()) ||
        std::holds_alternative<local::Hello>(message.value()))
        return false;
    note(message.value());
    return true;
}

void AgentChannel::keep(const local::Give& give, FileDescriptor memory) {
    auto& handovers = handovers_[give.kind];
    MemoryHandover fresh{.memory = std::move(memory),
                         .size_bytes = give.size_bytes,
                         .step = give.step,
                         .rank = give.rank,
                         .directory = give.directory};
    if (give.kind == local::HandoverKind::flight_record) {
        handovers.clear();
        handovers.push_back(std::move(fresh));
        return;
    }
    (give.kind == local::HandoverKind::snapshot ? facts_.snapshot_step : facts_.copy_step) = fresh.step;
    drop_overtaken(handovers, fresh);
    keep_newest(handovers, fresh, true, snapshots_kept);
    keep_newest(handovers, fresh, false, snapshots_kept - 1);
    const bool snapshot = give.kind == local::HandoverKind::snapshot;
    if (handovers.size() == (snapshot ? snapshots_kept_in_all : copies_kept_in_all)) handovers.erase(handovers.begin());
    const bool second =
        std::ranges::any_of(handovers, [&](const MemoryHandover& gift) { return !gift.earlier && alike(gift, fresh); });
    // Workers give a second one when all have the first: nobody goes back to a round before this one.
    if (snapshot && second) {
        keep_newest(handovers, fresh, true, 0);
        std::erase_if(handovers_[local::HandoverKind::copy], [](const MemoryHandover& gift) { return gift.earlier; });
    }
    handovers.push_back(std::move(fresh));
}

void AgentChannel::offer(local::HandoverKind kind) {
    for (const auto& gift : handovers_[kind]) {
        const int memory = gift.memory.get();
        const local::Offer offer{kind, gift.size_bytes};
        if (send_datagram(worker_.native_handle(), local::encode(offer), {&memory, 1}) != 0)
            log(LogLevel::warning, "a snapshot did not reach the worker at ", address_);
    }
}

void AgentChannel::note_section(const local::Section& section) {
    constexpr std::uint64_t longest_ms = 1000ULL * 3600 * 24 * 365;
    const auto now = std::chrono::steady_clock::now();
    facts_.sections = facts_.sections_at(now);
    facts_.section = section.name;
    facts_.section_since = now;
    facts_.section_limit = std::chrono::milliseconds(std::min(section.limit_ms, longest_ms));
}

void AgentChannel::note_step(std::int64_t step) {
    step = std::clamp<std::int64_t>(step, -1, step_max);
    facts_.step = step;
    facts_.stepped_at = std::chrono::steady_clock::now();
    if (!facts_.first_step) facts_.first_step = step;
}

void AgentChannel::note(const local::Message& message) {
    if (const auto* hello = std::get_if<local::Hello>(&message))
        facts_.runtime = hello->runtime;
    else if (const auto* progress = std::get_if<local::Progress>(&message))
        note_step(progress->step);
    else if (const auto* section = std::get_if<local::Section>(&message))
        note_section(*section);
    else if (std::holds_alternative<local::Heartbeat>(message))
        ++facts_.heartbeats;
    else if (std::holds_alternative<local::CanKeep>(message) || std::holds_alternative<local::Held>(message))
        if (on_keeping_) on_keeping_(message);
}

void AgentChannel::hang_up() {
    boost::system::error_code ignored;
    worker_.close(ignored);
    if (!std::exchange(facts_.connected, false) || closed_ || !on_keeping_) return;
    on_keeping_(local::CanKeep{false});
}

void AgentChannel::send(const local::Message& message) {
    if (std::holds_alternative<local::RoundEnded>(message) || std::holds_alternative<local::Notice>(message))
        warning_ = message;
    if (worker_.is_open()) deliver(message);
}

void AgentChannel::deliver(const local::Message& message) {
    if (send_datagram(worker_.native_handle(), local::encode(message)) != 0)
        log(LogLevel::info, "a ", local::name(message), " did not reach the worker at ", address_);
}

Result<ClosingPtr<AgentChannel>> AgentChannel::open(asio::io_context& loop, std::uint32_t local_rank,
                                                    std::vector<MemoryHandover> snapshots,
                                                    std::vector<MemoryHandover> copies) {
    std::string address = fresh_address(local_rank);
    auto socket = MUSTER_TRY(listen_locally(std::string_view(address).substr(1), "a worker"));
    std::shared_ptr<AgentChannel> made(new AgentChannel(loop, std::move(address), std::move(socket)));
    for (auto* handovers : {&snapshots, &copies}) {
        for (auto& gift : *handovers) gift.earlier = true;
    }
    made->handovers_[local::HandoverKind::snapshot] = std::move(snapshots);
    made->handovers_[local::HandoverKind::copy] = std::move(copies);
    made->wait_for_worker();
    return closing(std::move(made));
}

void AgentChannel::close() {
    closed_ = true;
    boost::system::error_code ignored;
    listener_.close(ignored);
    accept_timer_.cancel();
    while (!newcomers_.empty()) dismiss(newcomers_.front());
    hang_up();
    handovers_.clear();
}

int AgentChannel::gift(local::HandoverKind kind) const {
    const auto found = handovers_.find(kind);
    return found == handovers_.end() || found->second.empty() ? -1 : found->second.back().memory.get();
}

std::vector<MemoryHandover> AgentChannel::take_snapshots() {
    read_the_rest();
    return std::exchange(handovers_[local::HandoverKind::snapshot], {});
}

}  // namespace muster::agent
