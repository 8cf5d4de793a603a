#include "tests/simulation/host/disk.h"

namespace muster::simulation {

Disk::Disk(EventQueue& events, Random random, Duration slowest, bool complete)
    : events_(events), random_(random), slowest_(slowest) {
    const auto record = rendezvous::complete_record();
    if (complete) content_[record.key] = record.value;
    some_time_ago_ = content_;
}

void Disk::write(std::uint64_t sequence, std::vector<rendezvous::Record> records, Persisted persisted) {
    waiting_.push_back({sequence, std::move(records), std::move(persisted)});
    if (writing_.empty()) begin();
}

void Disk::begin() {
    if (waiting_.empty()) return;
    writing_.swap(waiting_);
    const auto number = ++transaction_;
    events_.after(random_.between(Duration{10us}, slowest_), [this, number] {
        if (number != transaction_ || writing_.empty()) return;
        const auto last = writing_.back();
        commit();
        last.persisted(last.sequence);
        begin();
    });
}

void Disk::commit() {
    if (random_.chance(200)) some_time_ago_ = content_;
    for (const auto& step : writing_) {
        for (const auto& record : step.records) {
            if (record.value.empty())
                content_.erase(record.key);
            else
                content_[record.key] = record.value;
        }
    }
    writing_.clear();
}

void Disk::writer_killed(Plant plant) {
    if (random_.chance(500)) commit();
    writing_.clear();
    waiting_.clear();
    ++transaction_;
    if (plant == Plant::loses_last_writes) content_ = some_time_ago_;
}

std::vector<rendezvous::Record> Disk::records(Plant plant) const {
    std::vector<rendezvous::Record> all;
    for (const auto& [key, value] : content_) {
        if (plant == Plant::keeps_no_members && key.starts_with("member/")) continue;
        all.push_back({key, value});
    }
    return all;
}

}  // namespace muster::simulation
