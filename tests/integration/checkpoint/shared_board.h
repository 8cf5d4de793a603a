// What the processes of a test share: a store without a server, so that a rank can be killed at any moment, and what
// they want the test to know.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "muster/store.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::test {

/// Make it before the processes are forked. After one of them was killed only the figures and the complaint may be
/// looked at: it may have held the store's lock.
class SharedBoard {
  public:
    SharedBoard();
    ~SharedBoard();
    SharedBoard(const SharedBoard&) = delete;
    SharedBoard& operator=(const SharedBoard&) = delete;

    /// Values of at most 2,000 bytes.
    [[nodiscard]] std::unique_ptr<Store> connect() const;
    [[nodiscard]] std::shared_ptr<runtime::MeetingPlace> place() const;

    /// `step` is safe, as finish() said on some rank.
    void acknowledge(std::int64_t step) const;
    /// The greatest one; 0: none.
    [[nodiscard]] std::int64_t acknowledged() const;

    /// How often something has happened.
    void count() const;
    [[nodiscard]] int counted() const;

    /// The first one stays; an empty text is none.
    void print_error(const std::string& text) const;
    [[nodiscard]] std::string complaint() const;

  private:
    struct Memory;
    class Connection;
    class Place;
    Memory* memory_;
};

}  // namespace muster::test
