// Where a rank listens: accepts connections, and finds out which ranks they are from. A connection without the proof
// that it is from a rank of this group is closed.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/mesh/tcp_hello.h"
#include "worker_runtime/tcp/records/tcp_stream.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// What the two ranks of a connection know before it begins.
TcpPair pair_of(const GroupTerms& terms, const TcpCard& caller, const TcpCard& called);

struct TcpWelcome {
    enum class Kind {
        refused,  ///< Not expected.
        known,    ///< It stands already: a rank that finds several addresses of this one calls at all of them.
        later,    ///< It waits for the next host, which has not come yet.
        taken,    ///< Belongs to `place`.
    };
    Kind kind = Kind::refused;
    TcpStream* place = nullptr;

    static TcpWelcome into(TcpStream& place) {
        return place.valid() ? TcpWelcome{Kind::known} : TcpWelcome{Kind::taken, &place};
    }
};

/// Whoever owns the connections that come through a door.
class TcpHost {
  public:
    virtual ~TcpHost() = default;
    [[nodiscard]] virtual const TcpCard& card(int rank) const = 0;
    /// What becomes of a connection with a lower rank of this group, which has proven that it is one.
    virtual TcpWelcome welcome(const TcpHello& hello) = 0;
    /// `connection` has been proven, and `place` is where it belongs.
    virtual void settle(TcpStream& place, TcpStream connection, const TcpHello& hello) = 0;
};

/// One thread at a time.
class TcpDoor {
  public:
    static Result<std::unique_ptr<TcpDoor>> open(const std::vector<std::string>& addresses);

    /// Readable when serve() has something to do.
    [[nodiscard]] const FileDescriptor& bell() const { return epoll_; }
    [[nodiscard]] std::vector<TcpPlace> places() const;
    /// The descriptors of the listeners.
    [[nodiscard]] std::vector<int> listeners() const;

    /// Without waiting. `expected` is how many connections are missing, as far as this rank knows. An error: no
    /// descriptor is left for them. With none expected that is no error: whoever calls waits.
    Result<void> serve(const GroupTerms& terms, TcpHost& host, std::size_t expected);
    /// The host of a group that stands welcomes those who have waited for it.
    void reconsider(const GroupTerms& terms, TcpHost& host);

  private:
    /// A connection from somebody who has not said who he is.
    struct Guest {
        FileDescriptor socket;
        TcpHelloBytes hello{};
        std::size_t hello_size = 0;
        Instant until{};  ///< It has so long to say who it is.
    };
    using Guests = std::vector<Guest>;

    TcpDoor() = default;
    Result<void> watch(const FileDescriptor& socket);
    void unwatch(const FileDescriptor& socket) const;
    Result<void> admit(const GroupTerms& terms, TcpHost& host, const FileDescriptor& listener, std::size_t expected);
    bool hear(const GroupTerms& terms, TcpHost& host, Guest& guest);
    void receive(const GroupTerms& terms, TcpHost& host, Guest guest);
    void refuse(const GroupTerms& terms, const Guest& guest);
    void drop_oldest(const GroupTerms& terms, TcpHost& host);
    void listen(bool listens);
    void set_alarm(bool guests_go) const;

    std::vector<FileDescriptor> listeners_;
    Guests guests_;  ///< The oldest first.
    Guests later_;
    FileDescriptor epoll_;
    FileDescriptor alarm_;  ///< Rings the bell when serve() has something to do without a call.
    std::optional<Instant> paused_until_;
    bool told_of_strangers_ = false;
};

}  // namespace muster::runtime
