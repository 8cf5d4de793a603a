// A connection of a group: in clear text, or in encrypted records (record_cipher.h). Both behave as a non-blocking
// socket does.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/tcp/records/record_cipher.h"

namespace muster::runtime {

/// The records of both directions.
class TcpRecords {
  public:
    TcpRecords(std::string own_secret, std::string peers_secret);

    ssize_t send(int socket, std::span<const iovec> parts);
    ssize_t receive(int socket, std::span<const iovec> parts);
    /// Bytes that the socket no longer has, and that receive() has not given yet.
    [[nodiscard]] bool holds_bytes() const { return arrived_.size() + opened_.size() > 0; }

  private:
    /// Idle connections hold no memory.
    struct Buffer {
        std::unique_ptr<std::byte[]> memory;
        std::size_t begin = 0, end = 0;
        [[nodiscard]] std::size_t size() const { return end - begin; }
        [[nodiscard]] std::byte* data() const { return memory.get() + begin; }
        void take(std::size_t size_bytes);
    };
    class Cursor;
    void seal_some(Cursor& from);
    bool open_one(Cursor& to);
    ssize_t receive_more(int socket, std::size_t wanted);

    RecordCipher sealer_, opener_;
    Buffer sealed_;                ///< Records that the kernel has not taken yet.
    std::size_t sealed_data_ = 0;  ///< Bytes of the caller's in them: it counts them as sent when all have gone.
    Buffer arrived_;               ///< Ends with a part of a record.
    Buffer opened_;                ///< Data of a record that the caller had no room for.
    bool broken_ = false;          ///< A record was changed on the way; nothing after it counts.
};

class TcpStream {
  public:
    TcpStream() = default;
    explicit TcpStream(FileDescriptor socket, std::unique_ptr<TcpRecords> records = nullptr)
        : socket_(std::move(socket)), records_(std::move(records)) {}

    [[nodiscard]] bool valid() const { return socket_.valid(); }
    [[nodiscard]] int get() const { return socket_.get(); }
    [[nodiscard]] const FileDescriptor& socket() const { return socket_; }

    // One thread at a time sends, and one receives. Both return the bytes of all parts that have moved: less than all
    // only if the kernel moves no more now. -1 with errno: EAGAIN, or why the connection broke.

    /// After less than all, call it with the rest and nothing else before it. No SIGPIPE.
    ssize_t send(std::span<const iovec> parts) const;
    /// 0: the peer has closed. EBADMSG: the bytes are not those that the peer sent.
    ssize_t receive(std::span<const iovec> parts) const;
    /// Whether something is to be received that no poll of the socket shows.
    [[nodiscard]] bool holds_bytes() const { return records_ && records_->holds_bytes(); }

  private:
    FileDescriptor socket_;
    std::unique_ptr<TcpRecords> records_;  ///< Null: clear text.
};

}  // namespace muster::runtime
