// A folder of the test's own under $TMPDIR, gone with everything in it at the end of the test.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace muster::test {

class ScratchFolder {
  public:
    ScratchFolder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "muster-test-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
        path_ = pattern;
    }
    ~ScratchFolder() {
        // Again while a process that the test has started takes its own files away: one of the two finds a file gone.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        std::error_code ignored;  // a test that fails for another reason must show that one
        do {
            std::filesystem::remove_all(path_, ignored);
        } while (std::filesystem::exists(path_, ignored) && std::chrono::steady_clock::now() < deadline);
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    /// The path of `name` inside.
    [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    [[nodiscard]] std::string string() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

}  // namespace muster::test
