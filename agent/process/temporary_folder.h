// A folder of a program that this process runs. It goes with everything in it.
#pragma once

#include <string>

namespace muster::agent {

class TemporaryFolder {
  public:
    /// Below `base`, for this user alone. Where it cannot be made, the program fails with its name.
    explicit TemporaryFolder(const std::string& base);
    /// Waits up to 1 s for processes that were killed just now and still write.
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace muster::agent
