// EtcdCore: what a new leader reads, and what it writes afterwards.
#include <utility>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/state/etcd/etcd_core.h"

namespace muster::rendezvous {

namespace {

constexpr Duration write_timeout = 1s;
/// Parts of a batch, far below the size limit of a transaction.
constexpr std::size_t part_bytes = 512 * 1024;
/// The version of the records is part of the key, so another version's records are never used.
const std::string version = cat("v", record_version, "/");

using Changes = std::map<std::string, std::string>;

std::string to_bytes(const Changes& changes) {
    std::string out;
    ByteWriter writer(out);
    for (const auto& [name, value] : changes) {
        writer.blob<std::uint32_t>(name);
        writer.blob<std::uint32_t>(value);
    }
    return out;
}

std::optional<Changes> from_bytes(std::string_view bytes) {
    Changes changes;
    ByteReader reader(bytes);
    while (reader.ok() && reader.remaining() > 0) {
        const std::string name(reader.blob<std::uint32_t>(reader.remaining()));
        changes[name] = std::string(reader.blob<std::uint32_t>(reader.remaining()));
    }
    return reader.finished() ? std::optional(std::move(changes)) : std::nullopt;
}

/// "v11/" of a key below the prefix; empty for one that has no version.
std::string_view version_of(std::string_view key) {
    unsigned number = 0;
    const auto end = key.find('/');
    const bool has_one = key.starts_with('v') && end != key.npos && parse_number(key.substr(1, end - 1), number);
    return has_one ? key.substr(0, end + 1) : std::string_view();
}

}  // namespace

std::string EtcdCore::state_key(std::string_view record) const {
    return cat(config_.prefix, version, "state/", record);
}

std::string EtcdCore::batch_key(std::size_t part) const {
    return cat(config_.prefix, version, "batch/", part);
}

// ---- reading ----

void EtcdCore::on_page(const KeysReply& told, Instant now) {
    load_revision_ = load_revision_ == 0 ? told.revision : load_revision_;
    pages_.insert(pages_.end(), told.keys.begin(), told.keys.end());
    if (!told.more || told.keys.empty()) return loaded(now);
    load_from_ = told.keys.back().key + '\0';
}

/// All pages have one revision, so this is exactly the state that the previous leader left.
void EtcdCore::loaded(Instant now) {
    std::map<std::string, EtcdKeyValue> keys;
    for (auto& told : std::exchange(pages_, {})) keys.insert_or_assign(told.key, std::move(told));
    const auto leader = keys.find(key("leader"));
    if (leader == keys.end() || leader->second.created != fence_)
        return step_down("its leader key in etcd was deleted", now);
    const auto serial = keys.find(key("serial"));
    serial_revision_ = serial == keys.end() ? 0 : serial->second.modified;
    serial_ = 0;
    ++load_count_;

    Changes state;
    std::set<std::string> others;
    const auto prefix = state_key({});
    for (const auto& [name, told] : keys) {
        if (name.starts_with(prefix)) state[name.substr(prefix.size())] = told.value;
        const auto found = version_of(std::string_view(name).substr(config_.prefix.size()));
        if (!found.empty() && found != version) others.insert(key(found));
    }
    if (!others.empty())
        out_.push_back(
            LogNote{cat("etcd has records of another version of muster below ",
                        join({others.begin(), others.end()}, " and "), "; this musterd uses ", key(version),
                        " alone, and the agents of running jobs send theirs again; run the musterd that wrote "
                        "them until its jobs are over, or delete them with etcdctl del --prefix")});
    std::size_t part_count = 0;
    const auto count = keys.find(cat(config_.prefix, version, "batch-count"));
    if (count != keys.end() && parse_number(count->second.value, part_count)) {
        std::string bytes;
        for (std::size_t part = 0; part < part_count && keys.contains(batch_key(part)); ++part)
            bytes += keys.at(batch_key(part)).value;
        // A batch that the previous leader wrote but did not apply.
        if (const auto changes = from_bytes(bytes)) {
            for (const auto& [name, value] : *changes) {
                if (value.empty())
                    state.erase(name);
                else
                    state[name] = value;
            }
            plan_pieces(*changes, state_key({}));
        }
        plan_end_of_batch();
    }
    role_ = Role::leads;
    known_leader_ = config_.self;
    Lead lead;
    for (auto& [name, value] : state) {
        kept_.insert(name);
        lead.records.push_back({name, std::move(value)});
    }
    out_.push_back(std::move(lead));
}

// ---- writing ----

std::string EtcdCore::aside_key() const {
    return cat(config_.prefix, "aside/", fence_, "/");
}

EtcdCore::Outputs EtcdCore::set_aside(const std::vector<Record>& records, Instant now) {
    const bool are_all = records.size() == kept_.size();
    for (const auto& record : records) kept_.erase(record.key);
    if (role_ != Role::leads) return settle(now);
    Changes copies;
    Changes erased;
    for (const auto& record : records) {
        copies[record.key] = record.value;
        erased[record.key] = {};
    }
    plan_pieces(copies, aside_key());
    // All at once, if no record is left: a part of a damaged state may look whole.
    if (are_all)
        due_.push_back({{Erase{state_key({}), range_end(state_key({}))}}, 0});
    else
        plan_pieces(erased, state_key({}));
    return settle(now);
}

void EtcdCore::settle_write(Instant now) {
    const auto& errand = this->errand(Kind::write);
    if (role_ != Role::leads || !may_ask() || errand.open || now < errand.not_before) return;
    if (due_.empty()) {
        if (waiting_.empty()) return;
        // All waiting steps go together; only the last value of each key counts.
        Changes changes;
        const auto sequence = waiting_.back().sequence;
        for (auto& step : std::exchange(waiting_, {}))
            for (auto& record : step.records) changes[record.key] = std::move(record.value);
        for (const auto& [name, value] : changes) value.empty() ? void(kept_.erase(name)) : void(kept_.insert(name));
        plan(std::move(changes), sequence);
    }
    Transaction write;
    write.compare = {{key("leader"), Compare::Target::created, fence_},
                     {key("serial"), Compare::Target::modified, serial_revision_}};
    write.then = due_.front().operations;
    write.then.push_back(Put{key("serial"), serial_value(serial_ + 1)});
    write.otherwise = {key("leader"), key("serial")};
    ask(Kind::write, std::move(write), write_timeout, now);
}

void EtcdCore::plan(Changes changes, std::uint64_t sequence) {
    std::size_t bytes = 0;
    for (const auto& [name, value] : changes) bytes += name.size() + value.size();
    if (changes.size() <= config_.operations_max && bytes <= config_.transaction_bytes_max) {
        plan_pieces(changes, state_key({}));
        if (due_.empty()) due_.push_back({});
        due_.back().keeps = sequence;
        return;
    }
    // Written ahead: the transaction that writes the count commits the batch.
    const auto whole = to_bytes(changes);
    std::size_t part_count = 0;
    for (std::size_t at = 0; at < whole.size(); at += part_bytes, ++part_count)
        due_.push_back({{Put{batch_key(part_count), whole.substr(at, part_bytes)}}, 0});
    due_.push_back({{Put{cat(config_.prefix, version, "batch-count"), cat(part_count)}}, sequence});
    plan_pieces(changes, state_key({}));
    plan_end_of_batch();
}

void EtcdCore::plan_end_of_batch() {
    const auto parts = cat(config_.prefix, version, "batch/");
    due_.push_back({{Erase{cat(config_.prefix, version, "batch-count"), {}}, Erase{parts, range_end(parts)}}, 0});
}

/// Plans `changes` as transactions within etcd's limits.
void EtcdCore::plan_pieces(const Changes& changes, const std::string& below) {
    Due piece;
    std::size_t bytes = 0;
    for (const auto& [name, value] : changes) {
        const auto size = name.size() + value.size();
        const bool full = piece.operations.size() >= config_.operations_max ||
                          (!piece.operations.empty() && bytes + size > config_.transaction_bytes_max);
        if (full) {
            due_.push_back(std::exchange(piece, {}));
            bytes = 0;
        }
        bytes += size;
        if (value.empty())
            piece.operations.push_back(Erase{below + name, {}});
        else
            piece.operations.push_back(Put{below + name, value});
    }
    if (!piece.operations.empty()) due_.push_back(std::move(piece));
}

void EtcdCore::on_written(const TransactionReply& told, Instant now) {
    if (told.succeeded) return written(told.revision);
    const auto& leader = told.read[0];
    const auto& serial = told.read[1];
    if (!leader || leader->created != fence_) return step_down("another daemon was elected", now);
    // The transaction was applied before; only its answer was lost.
    if (serial && serial->value == serial_value(serial_ + 1)) return written(serial->modified);
    step_down("its last write in etcd was replaced", now);
}

void EtcdCore::written(std::int64_t revision) {
    ++serial_;
    serial_revision_ = revision;
    if (due_.front().keeps != 0) out_.push_back(Kept{due_.front().keeps});
    due_.pop_front();
    errand(Kind::write).not_before = Instant::min();
}

}  // namespace muster::rendezvous
