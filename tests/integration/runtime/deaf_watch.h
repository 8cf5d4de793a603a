// A watch whose thread hears nothing for a while.
#pragma once

#include <sys/eventfd.h>

#include <future>
#include <memory>
#include <utility>

#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/transport/fd_watch.h"

namespace muster::test {

/// From here to its end the watch's thread is busy. Nobody may add to the watch, or take from it, meanwhile.
class DeafWatch {
  public:
    explicit DeafWatch(std::shared_ptr<runtime::FdWatch> watch)
        : watch_(std::move(watch)), always_ready_(::eventfd(1, EFD_CLOEXEC)) {
        id_ = watch_
                  ->add(always_ready_,
                        [this] {
                            deaf_.set_value();
                            end_.get_future().wait();
                            return false;
                        })
                  .value();
        deaf_.get_future().wait();
    }
    ~DeafWatch() {
        end_.set_value();
        watch_->remove(id_);
    }
    DeafWatch(const DeafWatch&) = delete;
    DeafWatch& operator=(const DeafWatch&) = delete;

  private:
    const std::shared_ptr<runtime::FdWatch> watch_;
    const FileDescriptor always_ready_;
    std::promise<void> deaf_;
    std::promise<void> end_;
    std::uint64_t id_ = 0;
};

}  // namespace muster::test
