// Bytes on their way to one reader: queued while a turn works, written together at its end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace muster::rendezvous {

/// Immutable bytes that many outboxes may hold at once: one encoding, many receivers.
using Buffer = std::shared_ptr<const std::string>;

class Outbox {
  public:
    enum class Flush {
        sent,     ///< nothing is left
        blocked,  ///< the socket takes no more now
        broken,   ///< the connection is gone; errno says why
    };

    /// Copies: for small answers, which share one block and so one write.
    void push(std::string_view bytes);
    /// Keeps a reference: for values and for messages with many receivers.
    void push(Buffer bytes);

    [[nodiscard]] bool empty() const { return unsent_bytes_ == 0; }
    [[nodiscard]] std::size_t unsent_bytes() const { return unsent_bytes_; }
    /// The memory that only this outbox holds: its blocks with their unused room, and its list of pieces.
    [[nodiscard]] std::size_t held_bytes() const {
        return unsent_bytes_ == 0 ? 0 : own_bytes_ + pieces_.capacity() * sizeof(Piece);
    }

    /// Writes until all is out or the socket blocks, many pieces in one system call.
    Flush flush(int fd);

  private:
    struct Piece {
        Buffer shared;
        std::string own;  // used when `shared` is empty
        [[nodiscard]] std::string_view bytes() const { return shared ? std::string_view(*shared) : own; }
    };

    void drop_sent(std::size_t count);

    std::vector<Piece> pieces_;
    std::size_t first_ = 0;       // pieces before it are sent
    std::size_t first_sent_ = 0;  // bytes of pieces_[first_] that are sent
    std::size_t unsent_bytes_ = 0;
    std::size_t own_bytes_ = 0;  // capacity of the pieces' own blocks
    std::string spare_;          // the last block's memory: a depth-1 exchange allocates nothing
};

}  // namespace muster::rendezvous
