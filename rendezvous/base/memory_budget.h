// One limit for all the memory that peers can make a port hold. Pure; one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace muster {

class MemoryBudget {
  public:
    explicit MemoryBudget(std::size_t bytes_max) : bytes_max_(bytes_max) {}

    [[nodiscard]] std::size_t bytes_max() const { return bytes_max_; }
    /// All charges together. May exceed `bytes_max`: a charge is never refused, but who can wait asks has_room() first.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// The part that waits for readers.
    [[nodiscard]] std::size_t waiting_bytes() const { return waiting_bytes_; }
    [[nodiscard]] bool has_room(std::size_t more) const { return more <= bytes_max_ && bytes_ <= bytes_max_ - more; }
    /// Readers that do not read hold a quarter of it: the slowest are to be closed.
    [[nodiscard]] bool is_short() const { return waiting_bytes_ > bytes_max_ / 4; }

  private:
    friend class MemoryCharge;
    std::size_t bytes_max_;
    std::size_t bytes_ = 0;
    std::size_t waiting_bytes_ = 0;
};

/// What one holder takes of a budget; given back by its destructor.
class MemoryCharge {
  public:
    enum class Kind { kept, waiting };  ///< waiting: for a reader

    explicit MemoryCharge(std::shared_ptr<MemoryBudget> budget, Kind kind = Kind::kept)
        : budget_(std::move(budget)), kind_(kind) {}
    ~MemoryCharge() { set(0); }
    MemoryCharge& operator=(MemoryCharge&&) = delete;

    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    void set(std::size_t bytes) {
        budget_->bytes_ += bytes - bytes_;
        if (kind_ == Kind::waiting) budget_->waiting_bytes_ += bytes - bytes_;
        bytes_ = bytes;
    }
    void add(std::size_t bytes) { set(bytes_ + bytes); }
    void subtract(std::size_t bytes) { set(bytes_ - bytes); }

  private:
    std::shared_ptr<MemoryBudget> budget_;
    Kind kind_;
    std::size_t bytes_ = 0;
};

/// Bytes that several readers share. They are charged once, until the last reference is gone.
inline std::shared_ptr<const std::string> charged_bytes(std::string bytes, std::shared_ptr<MemoryBudget> budget) {
    struct Charged {
        Charged(std::string all, std::shared_ptr<MemoryBudget> budget)
            : bytes(std::move(all)), charge(std::move(budget), MemoryCharge::Kind::waiting) {
            charge.set(bytes.size());
        }
        std::string bytes;
        MemoryCharge charge;
    };
    const auto held = std::make_shared<Charged>(std::move(bytes), std::move(budget));
    return {held, &held->bytes};
}

}  // namespace muster
