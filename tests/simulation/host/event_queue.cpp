#include "tests/simulation/host/event_queue.h"

#include <algorithm>

namespace muster::simulation {

namespace {

/// True when `a` comes after `b`: the order of a heap whose top is the next thing.
constexpr auto later = [](const auto& a, const auto& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
};

}  // namespace

void EventQueue::at(Moment when, Happening what) {
    heap_.push_back({std::max(when, now_), planned_count_++, std::move(what)});
    std::push_heap(heap_.begin(), heap_.end(), later);
}

bool EventQueue::run_one() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Entry next = std::move(heap_.back());
    heap_.pop_back();
    now_ = next.when;
    ++done_count_;
    next.what();
    return true;
}

void Alarm::set(Moment when) {
    if (when == set_for_) return;
    set_for_ = when;
    const std::uint64_t mine = ++*setting_;
    if (when == never) return;
    events_.at(when, [this, setting = setting_, mine] {
        if (*setting != mine) return;
        set_for_ = never;
        ring_();
    });
}

}  // namespace muster::simulation
