#include "worker_runtime/checkpoint/agreement.h"

#include <algorithm>
#include <span>
#include <vector>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// Of fixed size, as collectives want it.
struct Word {
    std::int32_t code = -1;  ///< -1: no error
    std::uint32_t size = 0;
    char text[1000] = {};

    explicit Word(std::string_view words = {}) { put(words); }
    explicit Word(const Error& error) : code(static_cast<std::int32_t>(error.code)) { put(error.context); }

    void put(std::string_view words) {
        size = static_cast<std::uint32_t>(std::min(words.size(), sizeof text));
        std::copy_n(words.begin(), size, text);  // which, other than memcpy, takes nothing from nowhere
    }
    [[nodiscard]] std::string words() const { return {text, std::min<std::size_t>(size, sizeof text)}; }
    [[nodiscard]] Error error() const { return {static_cast<Errc>(code), words()}; }
};

}  // namespace

Result<std::string> from_rank_0(Communicator& world, const Result<std::string>& own, Duration timeout) {
    Word word;
    if (world.rank() == 0) word = own ? Word(std::string_view(*own)) : Word(own.error());
    MUSTER_TRY(world.run(broadcast(buffer(bytes_of(std::span(&word, 1))), 0), timeout));
    if (word.code >= 0) return word.error();
    return word.words();
}

Result<Agreement> all_agree(Communicator& world, const Result<void>& own, Duration timeout) {
    Word mine = own ? Word() : Word(own.error());
    std::vector<Word> all(static_cast<std::size_t>(world.size()));
    MUSTER_TRY(world.run(all_gather(buffer(bytes_of(std::span(&mine, 1))), buffer(bytes_of(std::span(all)))), timeout));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].code < 0) continue;
        return Agreement{false,
                         all.size() == 1 ? all[rank].error() : with_context(all[rank].error(), cat("rank ", rank))};
    }
    return Agreement{};
}

}  // namespace muster::runtime
