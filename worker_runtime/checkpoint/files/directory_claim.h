// The right to add checkpoints to a directory. Rank 0 of one round of one job has it.
//
// The file LOCK in the directory has two bytes that are locked by fcntl (these locks end with the process and work over
// NFS). Byte 0 is locked as long as the owner lives, byte 1 while a process reads the file or commits. The content
// names the last claimant. A process of an earlier round may live on behind a broken network. It detects this when it
// commits: the file has another token, and the commit is refused.
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

/// Returns a random word, unique in practice: 16 hexadecimal digits.
std::string fresh_token();

class DirectoryClaim {
  public:
    /// Claims the directory. already_exists: a living process of another job, or of this round or a later one, has it;
    /// the text names it. refused: LOCK is a link or another user's file, and is left alone. permission_denied: LOCK
    /// cannot be written. timed_out: byte 1 stays locked. If the file system has no locks, a warning is logged, and
    /// only the token protects.
    static Result<DirectoryClaim> take(const std::string& directory, const Claimant& claimant);

    /// For a process that completes the draft of an ended round without a claim of its own. exclusively() then fails
    /// while rank 0 of that round or a later one lives, or if the file names another job or a later round. not_found:
    /// the directory has never been claimed.
    static Result<DirectoryClaim> visit(const std::string& directory, const Claimant& visitor);

    ~DirectoryClaim();
    DirectoryClaim(DirectoryClaim&&) noexcept;
    DirectoryClaim& operator=(DirectoryClaim&&) noexcept;

    /// Runs `action` while no other process can commit. refused: the directory now belongs to another claimant, named
    /// in the text. For a visitor also already_exists: the claimant still lives.
    Result<void> exclusively(const std::function<Result<void>()>& action);

    [[nodiscard]] bool is_visitor() const;

    /// Returns a word unique to this claim; empty for a visitor.
    [[nodiscard]] const std::string& token() const;

  private:
    struct Body;
    explicit DirectoryClaim(std::unique_ptr<Body> body);
    std::unique_ptr<Body> body_;
};

}  // namespace muster::runtime
