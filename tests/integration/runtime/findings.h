// What ranks in threads find wrong, for the test's own thread to assert: Catch2's assertions are not thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::test {

class Findings {
  public:
    void expect(bool good, const std::string& what) {
        const std::lock_guard lock(mutex_);
        if (!good && text_.size() < 2000) text_ += what + "\n";
    }
    template <class T>
    void expect(const Result<T>& result, const std::string& what) {
        expect(result.has_value(), what + ": " + (result ? "" : result.error().context));
    }
    /// A failure whose text has all of `words`.
    template <class T>
    void expect_error(const Result<T>& result, const std::vector<std::string>& words) {
        if (result) return expect(false, "no error");
        for (const auto& word : words) {
            expect(result.error().context.find(word) != std::string::npos,
                   "no \"" + word + "\" in: " + result.error().context);
        }
    }
    [[nodiscard]] std::string text() const {
        const std::lock_guard lock(mutex_);
        return text_;
    }

  private:
    mutable std::mutex mutex_;
    std::string text_;
};

}  // namespace muster::test
