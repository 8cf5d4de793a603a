#include "worker_runtime/transport/fd_watch.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "rendezvous/base/thread_start.h"

namespace muster::runtime {

Result<std::shared_ptr<FdWatch>> FdWatch::start() {
    std::shared_ptr<FdWatch> watch(new FdWatch);
    watch->epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    watch->stop_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
    if (!watch->epoll_.valid() || !watch->stop_.valid() ||
        ::epoll_ctl(watch->epoll_.get(), EPOLL_CTL_ADD, watch->stop_.get(), &event) != 0) {
        return error_from_errno(errno, "watch for the end of peers");
    }
    watch->thread_ = MUSTER_TRY(start_thread("muster-watch", [body = watch.get()] { body->run(); }));
    return watch;
}

FdWatch::~FdWatch() {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
}

Result<std::uint64_t> FdWatch::add(const FileDescriptor& fd, std::function<bool()> ready) {
    const std::lock_guard lock(mutex_);
    const auto id = next_id_++;
    entries_[id] = {fd.get(), std::move(ready)};
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = id}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
        entries_.erase(id);
        return error_from_errno(errno, "watch for the end of a peer");
    }
    return id;
}

void FdWatch::remove(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(id);
    if (entry == entries_.end()) return;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->second.fd, nullptr);
    entries_.erase(entry);
}

void FdWatch::run() {
    for (;;) {
        epoll_event event{};
        const int count = ::epoll_wait(epoll_.get(), &event, 1, -1);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0 || event.data.u64 == 0) return;
        const std::lock_guard lock(mutex_);
        const auto entry = entries_.find(event.data.u64);
        // One-shot, so that a descriptor which stays readable calls nobody who has had enough.
        if (entry != entries_.end() && entry->second.ready()) {
            event.events = EPOLLIN | EPOLLONESHOT;
            ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, entry->second.fd, &event);
        }
    }
}

}  // namespace muster::runtime
