// Which parameters take part in training at the moment, learned from the last steps.
//
// Fed with what all ranks know (the same on all of them), so all ranks come to the same conclusion without a word.
// A parameter that no rank used in `patience` steps running becomes rare; a rare one that some rank used in as many
// steps running becomes regular again. Each change of mind about a parameter doubles its patience, so that one used
// every now and then stays where it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::runtime {

class UsedParameters {
  public:
    static constexpr std::uint16_t patience_first = 3;
    static constexpr std::uint16_t patience_max = 1024;

    explicit UsedParameters(std::size_t count);

    /// One step: `used[i]` where any rank used parameter i. True: rare() has changed.
    bool observe(const std::vector<bool>& used);

    [[nodiscard]] const std::vector<bool>& rare() const { return rare_; }

    /// All that was learned, three numbers a parameter; restore() goes on from there. False: it is of other parameters.
    [[nodiscard]] std::vector<std::int64_t> state() const;
    bool restore(std::span<const std::int64_t> state);

  private:
    struct History {
        std::uint16_t surprise_count = 0;  ///< steps running that were not as `rare` says
        std::uint16_t patience = patience_first;
    };

    std::vector<bool> rare_;
    std::vector<History> histories_;
};

}  // namespace muster::runtime
