// The waiting half of KeyValue: intrusive lists, so that nothing is ever searched for.
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/store/key_value.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t kept_links_max = 16;

}  // namespace

Result<void> KeyValue::park(KeyEntry& entry, WaitSet& set) {
    if (wait_count_ >= config_.wait_count_max) {
        drop_if_unused(entry);
        return Error{Errc::limit_exceeded, cat(wait_count_, " keys are being waited for, the maximum")};
    }
    MUSTER_CHECK(set.links_.size() < set.links_.capacity(), set.links_.size());
    WaitLink& link = set.links_.emplace_back();
    link.entry = &entry;
    link.set = &set;
    link.previous = entry.last_wait;
    (entry.last_wait != nullptr ? entry.last_wait->next : entry.first_wait) = &link;
    entry.last_wait = &link;
    ++set.missing_count_;
    ++wait_count_;
    return {};
}

void KeyValue::unlink(WaitLink& link) {
    KeyEntry& entry = *link.entry;
    (link.previous != nullptr ? link.previous->next : entry.first_wait) = link.next;
    (link.next != nullptr ? link.next->previous : entry.last_wait) = link.previous;
    link.entry = nullptr;
    --link.set->missing_count_;
    --wait_count_;
}

// True when the first waiter had waited for nothing else and is released now.
bool KeyValue::wake_first(KeyEntry& entry) {
    WaitSet& set = *entry.first_wait->set;
    unlink(*entry.first_wait);
    if (set.parked()) return false;
    released_.push_back(&set);
    return true;
}

// The list is given up as a whole: nothing is unlinked from what is not there any more.
void KeyValue::wake_all(KeyEntry& entry) {
    WaitLink* link = std::exchange(entry.first_wait, nullptr);
    entry.last_wait = nullptr;
    while (link != nullptr) {
        WaitLink* const next = link->next;
        link->entry = nullptr;
        --wait_count_;
        if (--link->set->missing_count_ == 0) released_.push_back(link->set);
        link = next;
    }
}

void KeyValue::wake_one(KeyEntry& entry) {
    while (entry.first_wait != nullptr && !wake_first(entry)) {
    }
}

void KeyValue::cancel(WaitSet& set) {
    if (set.parked())
        for (WaitLink& link : set.links_) {
            if (link.entry == nullptr) continue;
            KeyEntry& entry = *link.entry;
            unlink(link);
            drop_if_unused(entry);
        }
    // A set that once waited for many keys shall not keep their memory: nobody charges for it between waits.
    if (set.links_.capacity() > kept_links_max) std::vector<WaitLink>().swap(set.links_);
}

}  // namespace muster::rendezvous
