// Sockets that a forked child must not keep open. A data loader's process has copies of its parent's descriptors. If
// the parent died, its peers would not see their connections end while the child lives.
#pragma once

#include <vector>

namespace muster::runtime {

/// While it lives, every fork() of this process puts /dev/null in the place of these descriptors in the child. (They
/// are not closed, because the child may have objects that believe to own the numbers.)
class ForkGuard {
  public:
    explicit ForkGuard(std::vector<int> descriptors);
    ~ForkGuard();
    ForkGuard& operator=(ForkGuard&&) = delete;

  private:
    friend struct ForkGuards;
    std::vector<int> descriptors_;
};

}  // namespace muster::runtime
