// The store of a world of one. The launcher's store has no other reader, and without a launcher there is none.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "muster/store.h"

namespace muster::runtime {

/// The keys of this process. Copies share them.
class OwnStore final : public Store {
  public:
    Result<void> set(std::string_view key, std::string_view value) override;
    Result<std::string> get(std::string_view key, Duration timeout) override;
    Result<std::int64_t> add(std::string_view key, std::int64_t delta) override;
    Result<bool> erase(std::string_view key) override;

  private:
    struct Keys {
        std::mutex mutex;
        std::condition_variable grown;
        std::map<std::string, std::string, std::less<>> values;
    };
    std::shared_ptr<Keys> keys_ = std::make_shared<Keys>();
};

}  // namespace muster::runtime
