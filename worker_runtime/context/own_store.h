// The store of a world of one: nobody else would look into the launcher's, and where there is no launcher there is
// none.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "muster/store.h"

namespace muster::runtime {

/// Keys of this process. Copies see the same ones.
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
