// TLS on one accepted connection: what was read is decrypted, and an outbox is encrypted as fast as the kernel takes
// it, so that messages with many receivers are not copied for each of them beforehand.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "rendezvous/base/memory_budget.h"
#include "rendezvous/net/outbox.h"
#include "rendezvous/tls/psk_channel.h"

namespace muster::rendezvous {

class TlsStream {
  public:
    TlsStream(std::shared_ptr<const PskContext> context, std::shared_ptr<MemoryBudget> memory);

    /// The plain bytes of `wire`, in `buffer`, which is as large as `wire` can be and plain_bytes_more.
    std::string_view decrypt(std::string_view wire, std::vector<char>& buffer);
    /// What a record that began in an earlier read may add.
    static constexpr std::size_t plain_bytes_more = 20 * 1024;

    /// As Outbox::flush. `finishing`: tells the peer behind it that nothing more follows.
    Outbox::Flush flush(Outbox& plain, int fd, bool finishing);
    /// Encrypted, and not taken by the kernel.
    [[nodiscard]] std::size_t unsent_bytes() const { return channel_.output().size(); }
    [[nodiscard]] const PskChannel& channel() const { return channel_; }

  private:
    void weigh();

    PskChannel channel_;
    MemoryCharge held_;
};

}  // namespace muster::rendezvous
