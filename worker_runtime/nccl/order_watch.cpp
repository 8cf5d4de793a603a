#include "worker_runtime/nccl/order_watch.h"

#include <utility>

#include "rendezvous/base/thread_start.h"

namespace muster::runtime {

Result<std::unique_ptr<OrderWatch>> OrderWatch::start(std::shared_ptr<NcclStatusBoard> news, Duration interval,
                                                      std::function<void(const Error&)> fail) {
    std::unique_ptr<OrderWatch> watch(new OrderWatch);
    watch->thread_ = MUSTER_TRY(
        start_thread("muster-order", [own = watch.get(), news = std::move(news), interval, fail = std::move(fail)] {
            std::unique_lock lock(own->mutex_);
            while (!own->changed_.wait_for(lock, interval, [own] { return own->stop_; })) {
                lock.unlock();
                const auto same = news->compare();
                if (!same) return fail(same.error());
                lock.lock();
            }
        }));
    return watch;
}

OrderWatch::~OrderWatch() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

}  // namespace muster::runtime
