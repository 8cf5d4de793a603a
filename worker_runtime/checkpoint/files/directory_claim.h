// The right to add checkpoints to a directory. Rank 0 of one round of one job has it.
//
// The file LOCK in the directory has two locked bytes (fcntl, so that they go with the process and work over NFS): byte
// 0 is held as long as its owner lives, byte 1 while somebody looks at the file or commits. The file says who claimed
// the directory last. So a process of an earlier round, which may live on behind a broken network, is told apart at the
// moment at which it would commit: then the file holds another's token, and it is refused.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"

namespace muster::runtime {

struct Claimant {
    std::string job;
    std::int64_t round = 0;
};

/// A word that nobody else comes upon.
std::string fresh_token();

class DirectoryClaim {
  public:
    /// already_exists: a process that lives has it, and is of another job, or of this round or a later one; the text
    /// says who. refused: LOCK is a link or a file of another user, which is left alone. permission_denied: it cannot
    /// be written. timed_out: somebody sits on byte 1. Where the file system cannot lock, a warning is logged and the
    /// token alone protects.
    static Result<DirectoryClaim> take(const std::string& directory, const Claimant& claimant);

    /// For one who finishes what a round that ended has left, and claims nothing: while rank 0 of that round or of
    /// a later one lives, or the file is another job's or a later round's, exclusively() does nothing. not_found:
    /// nobody has claimed the directory yet.
    static Result<DirectoryClaim> visit(const std::string& directory, const Claimant& visitor);

    ~DirectoryClaim();
    DirectoryClaim(DirectoryClaim&&) noexcept;
    DirectoryClaim& operator=(DirectoryClaim&&) noexcept;

    /// Runs `action` while nobody else can commit. refused: the directory is somebody else's by now; who, in the text.
    /// For a visitor also already_exists: who claimed it still lives.
    Result<void> exclusively(const std::function<Result<void>()>& action);

    [[nodiscard]] bool is_visitor() const;

    /// A word that no other claim has; empty for a visitor.
    [[nodiscard]] const std::string& token() const;

  private:
    struct Body;
    explicit DirectoryClaim(std::unique_ptr<Body> body);
    std::unique_ptr<Body> body_;
};

}  // namespace muster::runtime
