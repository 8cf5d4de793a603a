// What a member knows of those below it in the tree of its round: who has promised that it has lost the daemon. Pure.
//
// A promise is a member's word that it has lost the daemon and joins no other round for 1.1 lease. A member tells its
// parent which subtrees have promised, and the age of the oldest of these promises. Nobody knows how long a message was
// under way, so each question echoes an answer of the parent: it tells its number and how long ago it arrived. The
// parent knows when it gave that answer, u. The question left at u + held or later, so the oldest promise was made at
// u + held - age or later. A message that is late, or a process that is suspended at any point, makes this bound older
// than the truth and never younger. Ages add up from one step to the next without any clock being compared.
//
// A member that cannot reach its parent asks its grandparent. That one puts the subtree of a child together from the
// child's own word and the words of its children. The child's own word is never dispensed with.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

/// The promises of some subtrees.
struct Covered {
    std::uint32_t children = 0;       ///< Bit i: everybody in the subtree of child i.
    bool is_all = true;               ///< So have all children.
    Instant oldest = Instant::max();  ///< No promise of these was made earlier. max: there is none.
};

class LossBelow {
  public:
    /// `longest_silence`: a member that has not asked for this time may have found another way to be heard, and what it
    /// said no longer counts.
    LossBelow(native::TreePlace place, Duration longest_silence) : place_(place), longest_silence_(longest_silence) {}

    /// Somebody asked. Ignored unless it is a child or a grandchild.
    void asked(const native::PeerAsk& ask, Instant now);
    /// That question has its answer now.
    void answered(const native::PeerAsk& ask, Instant now);
    [[nodiscard]] Covered covered(Instant now) const;

  private:
    struct Word {
        std::uint32_t covered = 0;
        Instant oldest;
        Instant said_at;
    };
    struct Answered {
        std::uint64_t number = 0;
        Instant at;
    };
    struct Member {
        std::optional<Word> word;
        std::uint64_t newest = 0;            ///< Number of its newest question.
        std::array<Answered, 8> answered{};  ///< The last ones: an answer may be lost, and an older one echoed.
        std::size_t answered_next = 0;
    };

    [[nodiscard]] bool is_below(std::uint32_t position) const;
    [[nodiscard]] const Word* word_of(std::uint64_t position, Instant now) const;
    /// Adds the promises of the whole subtree, unless one of them is missing.
    [[nodiscard]] bool add_subtree(std::uint32_t child, Instant now, Instant& oldest) const;

    native::TreePlace place_;
    Duration longest_silence_;
    std::map<std::uint32_t, Member> members_;  ///< By position: fan_out children and their children.
};

}  // namespace muster::rendezvous
